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

/// A change takes a gap between two steps, and a first step that is longer (docs/benchmarks.md).
inline constexpr Seconds kChangeCost{0.02};

/// Usage error `cli.adapt`: the plan splits more than the batch, or devices' samples unequally into
/// micro-batches, which an adaptation of this name does not go with.
Result<void> require_batch_split(const ChosenPlan& chosen, std::string_view adapt);

/// Seconds of a device's own work at its part of an even split; else what its speed says.
double slowness(const ChosenPlan& chosen, DeviceId id);

/// What devices may be given of a batch of so many samples at most, by memory, and what is believed
/// of them, in steps of as many equal micro-batches as the plan has: where there are prices all
/// devices of the question, else those of the plan.
std::vector<adapt::DeviceLimits> find_limits(const ChosenPlan& chosen, std::int64_t most);

/// A training whose split of the batch is decided while it runs, by one of `policies`.
/// It begins as the chosen plan says. Where there are prices, they are what is believed of devices
/// before they are seen, and devices that the plan leaves idle may be taken; without, the plan's
/// devices are learned from nothing. The plan's micro-batches stay, and are split alike. Usage
/// errors: a plan that does not split the batch alone, or not into equal micro-batches; a policy
/// that is not there.
Result<std::shared_ptr<Adaptation>> adapt_split(
    const ChosenPlan& chosen, const std::optional<Predicted>& predicted, const std::string& policy,
    adapt::SplitPolicies policies = adapt::split_policies());

}  // namespace motley::control
