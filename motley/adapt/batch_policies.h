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

/// What policies of the batch are made with.
struct BatchSetting {
  BatchSettings batch;
  std::int64_t samples_per_pass = 1;  ///< of the data, for those that decide once a pass
};

/// A policy of the batch by its name.
struct NamedBatchPolicy {
  std::string_view name;
  std::unique_ptr<policy::Policy> (*make)(const BatchSetting& setting,
                                          std::unique_ptr<OptionSource> source);
};
using BatchPolicies = std::span<const NamedBatchPolicy>;

/// Those of this library: "motley": batch, split and devices together, by the noise scale's
/// interval (batch_policy.h).
BatchPolicies batch_policies();

/// Usage error `adapt.policy` with a suggestion for a name that is none of `among`.
Result<std::unique_ptr<policy::Policy>> make_batch_policy(std::string_view name,
                                                          const BatchSetting& setting,
                                                          std::unique_ptr<OptionSource> source,
                                                          BatchPolicies among = batch_policies());

}  // namespace motley::adapt
