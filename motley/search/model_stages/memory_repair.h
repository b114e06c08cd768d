#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "motley/plan/planner.h"
#include "motley/search/model_stages/model_stage_costs.h"
#include "motley/search/model_stages/stage_recompute.h"

namespace motley::search {

/// By device that has too little memory, how much it lacks.
using Lacking = std::map<DeviceId, Bytes>;
Lacking find_lacking(const plan::Problem& problem, const plan::Plan& plan,
                     const plan::Price& price);

/// Fits plans of stages into memory: says what their layers recompute, by what layers hold and by
/// what programs were seen to hold beside that; and how much less a next search may use.
class MemoryRepair {
 public:
  /// Both must outlive it.
  MemoryRepair(const plan::Problem& problem, ModelStageCosts& costs)
      : problem_(problem), costs_(costs) {}

  /// Recomputes as little as the bytes of layers allow; `lacking`: what devices lack without. False
  /// if nothing makes it fit.
  bool save_by_layers(const PricedStagePlan& found, Lacking& lacking, Again& again) const;
  /// Recomputes so much more. False if a device has nothing more to save.
  bool save(const PricedStagePlan& found, const Lacking& lacking, Again& again) const;
  /// Recomputes less where the program leaves more than 1 % of a memory. Is anything less?
  bool use_left(const PricedStagePlan& found, const plan::Price& price, Again& again) const;
  /// Learns what the program of a plan holds beside what its layers do.
  void learn(const PricedStagePlan& found, const plan::Price& price, Again& again);

  /// Lets the next search use less of the pools of devices that lack memory. `is_worth`: would the
  /// plan be better than what is known?
  void note(const StagePlan& plan, const Lacking& lacking, bool is_worth);
  /// Takes what was noted from the pools' memories. False if there is nothing to take, or nothing
  /// that is worth it though `has_plan`.
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
