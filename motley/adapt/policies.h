#pragma once

#include <cstdint>
#include <memory>
#include <span>
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

/// A policy of the split by its name, which it says of itself.
struct NamedSplitPolicy {
  std::string_view name;
  std::unique_ptr<policy::Policy> (*make)(std::string_view name, const SplitSetting& setting);
};
using SplitPolicies = std::span<const NamedSplitPolicy>;

/// Those of this library, in the order to show them:
///   motley  learned curves, the best split by them, changed when that gains (split_policy.h)
///   even    the same on every device (even_split.h)
SplitPolicies split_policies();

/// Usage error `adapt.policy` with a suggestion for a name that is none of `among`.
Result<std::unique_ptr<policy::Policy>> make_split_policy(std::string_view name,
                                                          const SplitSetting& setting,
                                                          SplitPolicies among = split_policies());

}  // namespace motley::adapt
