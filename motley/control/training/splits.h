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

/// Usage error `cli.adapt`: the plan splits more than the batch, or divides samples into unequal
/// micro-batches, which the adaptation `adapt` does not support.
Result<void> require_batch_split(const ChosenPlan& chosen, std::string_view adapt);

/// Seconds of a device's own work on its part of an even split; without prices, from its speed.
double slowness(const ChosenPlan& chosen, DeviceId id);

/// Returns each device's memory limit in a batch of at most `most` samples, and prior curves, for
/// steps with the plan's number of equal micro-batches. Covers all devices of the question with
/// prices, else the plan's devices.
std::vector<adapt::DeviceLimits> find_limits(const ChosenPlan& chosen, std::int64_t most);

/// A training that begins with the chosen plan and adapts the split of the batch by one of
/// `policies`. With prices, they are the prior of each device's curve, and devices that the plan
/// leaves idle may be used. Without prices, curves of the plan's devices are learned from nothing.
/// The number of micro-batches stays, and they stay equal. Usage errors: a plan that splits more
/// than the batch, or into unequal micro-batches; an unknown policy.
Result<std::shared_ptr<Adaptation>> adapt_split(
    const ChosenPlan& chosen, const std::optional<Predicted>& predicted, const std::string& policy,
    adapt::SplitPolicies policies = adapt::split_policies());

}  // namespace motley::control
