#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "motley/adapt/device_limits.h"
#include "motley/adapt/policies.h"
#include "motley/control/planning/chosen_plan.h"
#include "motley/control/training/adapting.h"

namespace motley::control {

/// A change costs a gap between two steps and a longer first step (docs/benchmarks.md).
inline constexpr Seconds kChangeCost{0.02};

/// Usage error `cli.adapt`: the plan splits more than the batch, or makes unequal micro-batches,
/// which `adapt` does not support.
Result<void> require_batch_split(const ChosenPlan& chosen, std::string_view adapt);

/// Seconds of a device's own work on its part of an even split; without prices, from its speed.
double slowness(const ChosenPlan& chosen, DeviceId id);

/// Returns memory limits up to `most` samples, and prior curves, in the plan's number of equal
/// micro-batches, of all the question's devices if there are prices, else of the plan's.
std::vector<adapt::DeviceLimits> find_limits(const ChosenPlan& chosen, std::int64_t most);

/// A training that begins with the chosen plan and adapts its split by one of `policies`. Prices
/// are the prior of curves, and allow devices that the plan leaves idle; without prices, curves of
/// the plan's devices are learned from nothing. Micro-batches keep their number and stay equal.
/// Usage errors: an unknown policy; a plan that splits more than the batch, or unequally.
Result<std::shared_ptr<Adaptation>> adapt_split(
    const ChosenPlan& chosen, const std::optional<Predicted>& predicted, const std::string& policy,
    adapt::SplitPolicies policies = adapt::split_policies());

}  // namespace motley::control
