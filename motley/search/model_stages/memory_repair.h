#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "motley/plan/planner.h"
#include "motley/search/model_stages/model_stage_costs.h"
#include "motley/search/model_stages/stage_recompute.h"

namespace motley::search {

/// The missing memory of each device that has too little.
using Lacking = std::map<DeviceId, Bytes>;
Lacking find_lacking(const plan::Problem& problem, const plan::Plan& plan,
                     const plan::Price& price);

/// Fits plans of stages into memory. Chooses what their layers recompute, by the bytes of layers
/// and of programs seen so far, and how much less memory the next search may use.
class MemoryRepair {
 public:
  /// Both must outlive it.
  MemoryRepair(const plan::Problem& problem, ModelStageCosts& costs)
      : problem_(problem), costs_(costs) {}

  /// Recomputes as little as the bytes of layers allow. `lacking`: the missing memory without
  /// recomputation. Returns false if nothing makes the plan fit.
  bool save_by_layers(const PricedStagePlan& found, Lacking& lacking, Again& again) const;
  /// Recomputes more, by the missing bytes. Returns false if a device has nothing left to
  /// recompute.
  bool save(const PricedStagePlan& found, const Lacking& lacking, Again& again) const;
  /// Recomputes less where the program leaves more than 1 % of a memory. Returns whether it did.
  bool use_left(const PricedStagePlan& found, const plan::Price& price, Again& again) const;
  /// Learns what a plan's program holds beside its layers.
  void learn(const PricedStagePlan& found, const plan::Price& price, Again& again);

  /// Lets the next search use less of the pools of devices that lack memory. `is_worth`: would the
  /// plan be better than what is known?
  void note(const StagePlan& plan, const Lacking& lacking, bool is_worth);
  /// Lowers the pools' memories as noted. Returns false if nothing was noted, or, with a plan,
  /// nothing that would be better.
  bool take_noted(bool has_plan);
  void forget_noted();

 private:
  /// What programs hold on devices of some pools beside what their layers do by themselves: the
  /// least that was seen, as a part of that or as bytes more.
  struct Beyond {
    double part = 1, bytes = 0;
  };
  double held(const StageSeat& at) const;
  double beyond(const StageSeat& at) const;
  double peak(const PlannedStage& stage, const plan::Price& price, std::size_t first_rank) const;
  std::optional<Bytes> memory_of(const PlannedStage& stage) const;
  std::vector<std::size_t> pools_of(const PlannedStage& stage) const;
  std::size_t pool_of(const StagePlan& plan, DeviceId device) const;

  const plan::Problem& problem_;
  ModelStageCosts& costs_;
  std::map<std::vector<std::size_t>, Beyond> beyond_;  // by pools of a stage
  std::map<std::size_t, double> noted_;  // by pool: the part of its memory that a plan may use
  bool is_worth_ = false;                // is something noted that is better than what is known?
};

}  // namespace motley::search
