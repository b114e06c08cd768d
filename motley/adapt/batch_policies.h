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

/// The inputs of a batch policy.
struct BatchSetting {
  BatchSettings batch;
  std::int64_t samples_per_pass = 1;  ///< of the data, for policies that decide once per pass
};

/// A batch policy by name.
struct NamedBatchPolicy {
  std::string_view name;
  std::unique_ptr<policy::Policy> (*make)(const BatchSetting& setting,
                                          std::unique_ptr<OptionSource> source);
};
using BatchPolicies = std::span<const NamedBatchPolicy>;

/// Lists this library's: "motley" chooses batch, split and devices together, by the noise scale's
/// interval (batch_policy.h).
BatchPolicies batch_policies();

/// Makes one by name. Usage error `adapt.policy`, with a suggestion, for a name not in `among`.
Result<std::unique_ptr<policy::Policy>> make_batch_policy(std::string_view name,
                                                          const BatchSetting& setting,
                                                          std::unique_ptr<OptionSource> source,
                                                          BatchPolicies among = batch_policies());

}  // namespace motley::adapt
