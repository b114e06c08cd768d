#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "motley/base/result.h"
#include "motley/plan/planner.h"
#include "motley/search/split/planner_inputs.h"
#include "motley/search/spmd/study.h"

namespace motley::search {

/// Ways for devices to share a model's operators in a stage, with even parts for identical devices.
/// They are chosen for the whole graph at one micro-batch as in the sharding search
/// (choice_problem.h); what a step has once counts once for all micro-batches. A stage takes the
/// ways of its own operators.
class StageWays {
 public:
  /// `batch`: samples of the micro-batch; `depths` of the graph, or null. All arguments must
  /// outlive it. Usage errors of SpmdStudy::make.
  static Result<std::unique_ptr<StageWays>> make(const PlannerInputs& inputs,
                                                 const plan::Problem& problem, std::int64_t batch,
                                                 std::shared_ptr<const Depths> depths);

  /// Returns distinct regions of the whole graph (of depths->searched) on these devices with these
  /// shares: the best at low and at high memory prices, the samples spread with sharded parameters,
  /// and the latter gathered again for each pass if whole copies would need much of the memory.
  /// `micro_batches`: approximate number per step.
  std::vector<plan::Region> find(const std::vector<DeviceId>& devices,
                                 const std::vector<double>& shares, std::int64_t micro_batches);
  /// Returns shares by each device's time for a micro-batch alone, with three digits of their sum.
  std::vector<double> find_shares(const std::vector<DeviceId>& devices) const;
  /// Returns the seconds of a micro-batch on one device alone.
  double whole_step(DeviceId device) const {
    return study_->whole_step(study_->kinds().of(device)).total;
  }

 private:
  StageWays() = default;

  SpmdQuestion question_;
  std::optional<SpmdStudy> study_;  // of the question, so it does not move
};

}  // namespace motley::search
