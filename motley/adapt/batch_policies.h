#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "motley/adapt/batch_policy.h"
#include "motley/adapt/option_source.h"
#include "motley/base/result.h"
#include "motley/policy/policy.h"

namespace motley::adapt {

/// What policies of the batch are made with.
struct BatchSetting {
  BatchSettings batch;
  std::int64_t samples_per_pass = 1;  ///< of the data, for those that decide once a pass
};

/// All policies of the batch by name, in the order to show them:
///   motley     batch, split and devices together, by the noise scale's interval (batch_policy.h)
///   adaptdl    once a pass the best of 50 batches, split evenly (batch_baselines.h, as the rest)
///   cannikin   the same by straight lines of each device
///   simigrad   a tenth up or down every 100 steps by how alike gradients are
///   jabas      the same, with its own split and, once a pass, its own group of devices
std::vector<std::string> batch_policy_names();

/// Usage error `adapt.policy` with a suggestion for an unknown name.
Result<std::unique_ptr<policy::Policy>> make_batch_policy(std::string_view name,
                                                          const BatchSetting& setting,
                                                          std::unique_ptr<OptionSource> source);

}  // namespace motley::adapt
