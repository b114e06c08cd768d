#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "motley/adapt/batch_policy.h"
#include "motley/adapt/option_source.h"
#include "motley/base/result.h"
#include "motley/policy/policy.h"

namespace motley::adapt {

struct BatchSetting {
  BatchSettings batch;
  std::int64_t samples_per_pass = 1;  ///< of the data, for policies that decide once per pass
};

struct NamedBatchPolicy {
  std::string_view name;
  std::unique_ptr<policy::Policy> (*make)(const BatchSetting& setting,
                                          std::unique_ptr<OptionSource> source);
};
using BatchPolicies = std::span<const NamedBatchPolicy>;

/// Lists "motley", which chooses batch, split and devices together (batch_policy.h).
BatchPolicies batch_policies();

/// Makes one by name. Usage error `adapt.policy`, with a suggestion, for a name not in `among`.
Result<std::unique_ptr<policy::Policy>> make_batch_policy(std::string_view name,
                                                          const BatchSetting& setting,
                                                          std::unique_ptr<OptionSource> source,
                                                          BatchPolicies among = batch_policies());

}  // namespace motley::adapt
