#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "motley/adapt/device_limits.h"
#include "motley/policy/policy.h"

namespace motley::adapt {

struct SplitSetting {
  std::vector<DeviceLimits> devices;
  std::int64_t epoch_steps = 100;  ///< for policies that decide once per epoch
  Seconds change_cost{0};          ///< pause of training for a change; used by motley
  std::vector<cost::GroupExchanges> exchanges = {};  ///< prior (learned_exchanges.h), for motley
};

struct NamedSplitPolicy {
  std::string_view name;
  std::unique_ptr<policy::Policy> (*make)(std::string_view name, const SplitSetting& setting);
};
using SplitPolicies = std::span<const NamedSplitPolicy>;

/// Lists this library's, in display order:
///   motley  learned curves, the best split by them, changed when that gains (split_policy.h)
///   even    the same on every device (even_split.h)
SplitPolicies split_policies();

/// Makes one by name. Usage error `adapt.policy`, with a suggestion, for a name not in `among`.
Result<std::unique_ptr<policy::Policy>> make_split_policy(std::string_view name,
                                                          const SplitSetting& setting,
                                                          SplitPolicies among = split_policies());

}  // namespace motley::adapt
