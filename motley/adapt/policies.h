#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "motley/adapt/device_limits.h"
#include "motley/policy/policy.h"

namespace motley::adapt {

/// What policies of the split are made with.
struct SplitSetting {
  std::vector<DeviceLimits> devices;
  std::int64_t epoch_steps = 100;  ///< for those that decide once an epoch
  Seconds change_cost{0};          ///< that training stands still for one; motley counts it
  std::vector<cost::GroupExchanges> exchanges = {};  ///< believed (learned_exchanges.h), of motley
};

/// All policies of the split by name, in the order to show them:
///   motley    learned curves, the best split by them, changed when that gains (split_policy.h)
///   even      the same on every device
///   hetseq    the same on every device, as HetSeq splits
///   adaptdl   the same on every device, as AdaptDL splits
///   lb-bsp    five samples a change from the slowest to the fastest device (fixed_splits.h)
///   cannikin  straight lines from the third epoch on (cannikin.h)
std::vector<std::string> split_policy_names();

/// Usage error `adapt.policy` with a suggestion for an unknown name.
Result<std::unique_ptr<policy::Policy>> make_split_policy(std::string_view name,
                                                          const SplitSetting& setting);

}  // namespace motley::adapt
