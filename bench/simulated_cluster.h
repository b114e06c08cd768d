#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "motley/adapt/device_limits.h"
#include "motley/base/result.h"
#include "motley/cost/step/group_split.h"
#include "motley/policy/policy.h"

namespace motley::bench {

/// Mean times of a step, for benchmarks of policies.
struct SimulatedCluster {
  std::string name;
  std::vector<adapt::DeviceLimits> limits;
  std::vector<cost::StepCurves> curves;  ///< of each device
  cost::GroupExchanges exchanges;
  std::int64_t batch = 0;

  std::vector<cost::GroupMember> members() const;
};

/// Time by samples relative to its first point, measured on one device.
struct MeasuredShape {
  std::string name;
  cost::Curve curve;
};
/// Reads the shapes of DATA/pollux's tasks on one GPU, step less synchronization, nondecreasing.
Result<std::vector<MeasuredShape>> read_shapes(const std::string& data);

/// The half of clusters: policies are developed on one and judged on the other.
enum class Half { kMade, kJudged };
/// Draws 2 to 16 devices with speeds, fixed costs, forward shares, bends, buckets, exchanges,
/// updates and (for a quarter) memory limits. `shape`: measured times; null: invented ones.
SimulatedCluster draw_cluster(std::uint64_t seed, Half half, const MeasuredShape* shape);

struct Conditions {
  std::int64_t steps = 200;
  double jitter = 0.02;           ///< of each device's times in a step, lognormal
  double first = 0;               ///< mean relative excess of a first step at a number of samples
  double late = 0;                ///< share of a device's steps delayed, by a fifth on average
  std::int64_t lag = 2;           ///< steps from a split's request to its begin
  std::int64_t slow_at = -1;      ///< step from which a device takes twice as long; -1: none
  std::int64_t slow_device = -1;  ///< which; -1: drawn
  std::int64_t seen_from = 1;     ///< first step that the policy sees
  std::uint64_t seed = 1;
};

struct Course {
  std::vector<double> excess;  ///< of each step's mean over the best one, less 1
  std::int64_t changes = 0;    ///< of the split
  std::int64_t told = 0;
  double step = 0, best = 0;  ///< seconds, of the last step
};
/// Begins with the even split.
Course run_policy(policy::Policy& policy, SimulatedCluster cluster, const Conditions& conditions);

/// Returns the steps from `first` on until all are within `bound` of the best.
std::int64_t steps_to(const Course& course, std::int64_t first, double bound);

}  // namespace motley::bench
