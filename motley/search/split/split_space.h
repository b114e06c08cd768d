#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "motley/plan/planner.h"
#include "motley/search/split/split_evaluator.h"
#include "motley/search/split/step_model.h"

namespace motley::search {

/// cap of a device that cannot hold the batch alone; the exact cap is rarely needed
inline constexpr std::int64_t kNotAll = -1;

/// Devices that no planner can distinguish: equal curves and equal memory.
struct DeviceType {
  const StepCurves* alone = nullptr;
  const StepCurves* shared = nullptr;
  std::vector<double> update_tails;  ///< of the shared curves
  bool shares_points = false;        ///< do they share points (cost/step/step_ramp.h)?
  std::optional<Bytes> memory;       ///< limit per device
  std::int64_t shared_cap = 0;       ///< most samples that fit in a group; 0: none
  std::int64_t alone_cap = 0;        ///< the same alone; kNotAll: less than the batch
  std::vector<DeviceId> members;     ///< in cluster order
};

/// The splits that a problem allows: each device gets nothing, or at least `least` samples and at
/// most what fits in its memory. Peak memory is assumed to grow with the samples; if a planner
/// finds that it does not, it calls `lower_caps` and searches again.
class SplitSpace {
 public:
  /// Problem and evaluator must outlive the space. Usage errors: no devices, a batch below 1.
  static Result<SplitSpace> make(const plan::Problem& problem, const SplitEvaluator& evaluator);

  const plan::Problem& problem() const { return *problem_; }
  const SplitEvaluator& evaluator() const { return *evaluator_; }
  std::int64_t batch() const { return problem_->global_batch; }
  std::int64_t least() const { return problem_->min_samples; }
  const std::vector<DeviceType>& types() const { return types_; }
  std::size_t type_of(DeviceId device) const { return type_of_.at(device); }
  /// Returns the most samples of a device, alone or in a group.
  std::int64_t cap(DeviceId device, SplitEvaluator::Setting setting) const;

  /// Returns the peak memory of each device, in the split's order.
  std::vector<Bytes> peaks(const BatchSplit& split) const;
  /// Returns why a split is not allowed, one clause per device ("b:0 needs 3.0 GiB for 20 samples,
  /// has 2.0 GiB"); empty if it is allowed.
  std::vector<std::string> find_faults(const BatchSplit& split) const;
  /// Lowers caps of types whose peak in this split exceeds their limit; false if there are none.
  bool lower_caps(const BatchSplit& split);
  /// Explains with numbers why no split is allowed, one sentence each; empty if one is.
  std::vector<std::string> explain_infeasible() const;

  const std::string& name(DeviceId device) const { return problem_->cluster->device(device).name; }
  /// Returns "a:0", "a:0 and a:1" or "a:0, a:1 and 14 more".
  std::string name_members(const std::vector<DeviceId>& devices) const;

 private:
  SplitSpace(const plan::Problem& problem, const SplitEvaluator& evaluator)
      : problem_(&problem), evaluator_(&evaluator) {}
  void add_device(DeviceId device);
  std::int64_t find_cap(DeviceId device, SplitEvaluator::Setting setting) const;
  std::string explain_total() const;

  const plan::Problem* problem_;
  const SplitEvaluator* evaluator_;
  std::vector<DeviceType> types_;
  std::map<DeviceId, std::size_t> type_of_;
};

SplitEvaluator::Setting setting_of(const BatchSplit& split);

}  // namespace motley::search
