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

/// Times of a step as they are on average, for benches of policies.
struct SimulatedCluster {
  std::string name;
  std::vector<adapt::DeviceLimits> limits;
  std::vector<cost::StepCurves> curves;  ///< of each device
  cost::GroupExchanges exchanges;
  std::int64_t batch = 0;

  std::vector<cost::GroupMember> members() const;
};

/// A shape of time over samples, relative to its first point, measured on one device.
struct MeasuredShape {
  std::string name;
  cost::Curve curve;
};
/// Of the tasks in DATA/pollux on one GPU, made nondecreasing: step less synchronisation.
Result<std::vector<MeasuredShape>> read_shapes(const std::string& data);

/// Which of two kinds of clusters is drawn: policies are made on one and judged on the other.
enum class Half { kMade, kJudged };
/// 2 to 16 devices with speeds, fixed costs, forward shares, bends, buckets, exchanges, updates and
/// (a quarter) limits of memory. `shape`: times are as measured; none: invented ones.
SimulatedCluster draw_cluster(std::uint64_t seed, Half half, const MeasuredShape* shape);

/// How steps go.
struct Conditions {
  std::int64_t steps = 200;
  double jitter = 0.02;  ///< of each device's times in a step, lognormal
  double first = 0;      ///< mean share by which the first step at a number of samples is longer
  double late = 0;       ///< share of a device's steps that something delays, by a fifth on average
  std::int64_t lag = 2;  ///< steps that still go as before behind the one that a split came of
  std::int64_t slow_at = -1;      ///< step from which a device takes twice as long; -1: none
  std::int64_t slow_device = -1;  ///< which; -1: one that is drawn
  std::int64_t seen_from = 1;     ///< the first step that the policy sees
  std::uint64_t seed = 1;
};

/// What a policy made of it.
struct Course {
  std::vector<double> excess;  ///< of each step as it is on average over the best one, less 1
  std::int64_t changes = 0;    ///< of the split
  std::int64_t told = 0;
  double step = 0, best = 0;  ///< seconds, of the last step
};
/// From the even split.
Course run_policy(policy::Policy& policy, SimulatedCluster cluster, const Conditions& conditions);

/// Steps from `first` on after which all are within `bound` of the best.
std::int64_t steps_to(const Course& course, std::int64_t first, double bound);

}  // namespace motley::bench
