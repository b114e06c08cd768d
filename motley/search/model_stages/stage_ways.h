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

/// How devices share a model's operators in a stage, alike ones in even parts: chosen for the whole
/// graph at one micro-batch as the sharding search chooses (choice_problem.h), with what a step has
/// once, however many micro-batches, counted as such. A stage has the ways of its own operators.
class StageWays {
 public:
  /// `batch`: samples of the micro-batch; `depths` of the graph, or null. What is given must
  /// outlive it. Usage errors of SpmdStudy::make.
  static Result<std::unique_ptr<StageWays>> make(const PlannerInputs& inputs,
                                                 const plan::Problem& problem, std::int64_t batch,
                                                 std::shared_ptr<const Depths> depths);

  /// Regions of all of the graph (of depths->searched) on these devices with these shares, each
  /// once: those that are best as memory costs little and much, and the samples spread with
  /// parameters kept in parts; and those gathered again for each pass, where whole copies of all
  /// would be much of the memory. `micro_batches`: about how many a step has.
  std::vector<plan::Region> find(const std::vector<DeviceId>& devices,
                                 const std::vector<double>& shares, std::int64_t micro_batches);
  /// Shares by what all of a micro-batch takes each device alone, to three digits of their sum.
  std::vector<double> find_shares(const std::vector<DeviceId>& devices) const;
  /// Seconds of a micro-batch on one of the problem's devices alone.
  double whole_step(DeviceId device) const {
    return study_->whole_step(study_->kinds().of(device)).total;
  }

 private:
  StageWays() = default;

  SpmdQuestion question_;
  std::optional<SpmdStudy> study_;  // of the question, so it does not move
};

}  // namespace motley::search
