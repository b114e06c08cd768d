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

/// How the batch may change.
struct BatchChoices {
  std::string policy = "motley";  ///< of `policies`
  adapt::BatchPolicies policies = adapt::batch_policies();
  std::int64_t least = 0, most = 0;  ///< samples a step; 0: the first batch, 16 times that
  std::optional<adapt::LearningRateRule> rule;  ///< none: AdaScale of sgd, else square root
  adapt::Objective objective;
  double steps = 0;          ///< of the first batch, that the training has; 0: not known
  std::int64_t samples = 0;  ///< of the data; 0: not known
  /// Devices come and go (`--elastic`), and there are so many at least in each group.
  bool is_elastic = false;
  std::size_t fewest_devices = 1;
  /// Of a training that goes on: the batch that it began with; 0: it begins.
  std::int64_t first_batch = 0;
};

/// A training whose batch, its split and the devices that compute it are decided while it runs. It
/// begins as the chosen plan says. Groups to choose from are the fastest device (of a plan with
/// one device, that), the fastest two, three, ...; each is given what its memory holds at most.
/// The noise of gradients shows between devices, or between micro-batches of a device alone, which
/// has two or as many as the plan says; where its step cannot be done so (batch norm), there is no
/// group of one, and a plan of one device is split over several. Where devices come and go, groups
/// are those of who is there. Curves are those of the prices,
/// where there are any, corrected by what is seen; without, the plan's devices are learned from
/// nothing.
///
/// A plan's micro-batches stay as many, and what each device is given is a multiple of them: so
/// they are identical on all devices, gradients are exchanged once, and each micro-batch is that of
/// one device. Limits of the batch are taken to multiples between them. Where batch norm's
/// statistics are those of each micro-batch, a plan of one device stays on it, one of several on
/// several.
///
/// Usage errors: a plan that does not split the batch alone; a batch that is no multiple of its
/// micro-batches; one device whose step cannot be done in micro-batches; a policy that is not
/// there, or knows of no devices that come and go; limits that leave the first batch out; no price
/// where costs count.
Result<std::shared_ptr<Adaptation>> adapt_batch(const ChosenPlan& chosen,
                                                const BatchChoices& choices);

/// Plans for devices that are there, whose steps say the noise of gradients as well: `replan`'s
/// splits, in multiples of the chosen plan's micro-batches; of one device in micro-batches where
/// its step can be done so. Both outlive it.
Replan replan_batch(const ChosenPlan& chosen, const Adaptation& adaptation, Replan replan);

}  // namespace motley::control
