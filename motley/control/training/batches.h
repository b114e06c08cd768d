#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "motley/adapt/batch_policies.h"
#include "motley/adapt/learning_rate.h"
#include "motley/control/planning/chosen_plan.h"
#include "motley/control/training/adapting.h"

namespace motley::control {

struct BatchChoices {
  std::string policy = "motley";  ///< one of `policies`
  adapt::BatchPolicies policies = adapt::batch_policies();
  /// Samples per step; 0: the first batch, 16 times the first batch.
  std::int64_t least = 0, most = 0;
  std::optional<adapt::LearningRateRule> rule;  ///< none: AdaScale for SGD, else square root
  adapt::Objective objective;
  double steps = 0;          ///< length of the training in steps of the first batch; 0: unknown
  std::int64_t samples = 0;  ///< of the data; 0: unknown
  /// Devices join and leave (`--elastic`); each group has at least `fewest_devices`.
  bool is_elastic = false;
  std::size_t fewest_devices = 1;
  /// The initial batch of a continued training; 0: the training is new.
  std::int64_t first_batch = 0;
};

/// A training that begins with the chosen plan and adapts its batch, split and devices. It chooses
/// among groups: the fastest device (the plan's device if it has one), the fastest two, three, and
/// so on; memory limits each device's samples. If devices join and leave, groups are of the present
/// ones. Observation corrects the curves from prices; without prices the curves of the plan's
/// devices are learned from nothing.
///
/// Gradient noise is measured between devices, or between micro-batches of a single device: two, or
/// the plan's number. If its step cannot be divided (batch norm), there is no group of one, and a
/// plan of one device is split over several.
///
/// The number of micro-batches stays, and each device's samples are a multiple of it. So a device's
/// micro-batches are of equal size, gradients are exchanged once, and each micro-batch is of one
/// device. Limits are rounded inward to multiples. If batch norm has statistics per micro-batch, a
/// plan of one device stays on one, and a plan of several on several.
///
/// Usage errors: a plan that splits more than the batch; a batch that is no multiple of its
/// micro-batches; one device whose step cannot be divided; an unknown policy, or one that cannot
/// handle changing devices; limits that exclude the first batch; no price where costs count.
Result<std::shared_ptr<Adaptation>> adapt_batch(const ChosenPlan& chosen,
                                                const BatchChoices& choices);

/// Makes `replan`'s splits measure gradient noise: in multiples of micro-batches, on one device in
/// micro-batches if its step can be divided. Both arguments outlive it.
Replan replan_batch(const ChosenPlan& chosen, const Adaptation& adaptation, Replan replan);

}  // namespace motley::control
