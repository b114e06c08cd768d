#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "motley/adapt/batch_policy.h"
#include "motley/base/json.h"
#include "peers/policies/pass_policy.h"

namespace motley::bench {

/// A training to replay: true step times and noise scale.
struct ReplayedTask {
  std::string name;
  std::vector<adapt::BatchOption> options;  ///< the largest group last
  double initial_batch = 1;
  double most_batch = 1;
  double least_on_all = 1;  ///< first batch of policies that know only the whole cluster
  double iterations = 1;    ///< steps of the initial batch until the target
  std::function<double(double progress, double batch)> noise;  ///< samples
  adapt::LearningRateRule rule = adapt::LearningRateRule::kAdaScale;
  adapt::ObjectiveKind objective = adapt::ObjectiveKind::kTime;
  std::int64_t samples_per_pass = 1;
  std::vector<std::int64_t> local_batches;  ///< jabas
  double change = 0.3;                      ///< seconds of pause for a change of ours
  double restart = 30;                      ///< seconds of pause when jabas changes devices
};

/// A policy's outcome. Policies: "even" (never changes), "adaptdl", "cannikin", "simigrad",
/// "jabas", "motley", and "motley on all": ours without a choice of devices.
struct Replayed {
  double seconds = 0, cost = 0;
  std::int64_t steps = 0, changes = 0, device_changes = 0;
  double last_batch = 0;
  double thought = 0;  ///< seconds of the policy itself per step
};

/// Replays to the target. Steps jitter by 2 %, gradients have 64 dimensions, and policies get
/// curves that are wrong by up to a fifth per device until they have seen steps.
Replayed replay(const ReplayedTask& task, const std::string& policy, std::uint64_t seed);

/// Replays with knowledge of the truth at every step, and free changes.
Replayed find_clairvoyant(const ReplayedTask& task, std::uint64_t seed);

}  // namespace motley::bench
