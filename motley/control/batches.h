#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "motley/adapt/batch_policy.h"
#include "motley/adapt/learning_rate.h"
#include "motley/control/adapting.h"
#include "motley/control/chosen_plan.h"

namespace motley::control {

/// How the batch may change.
struct BatchChoices {
  std::string policy = "motley";     ///< of adapt/batch_policies.h
  std::int64_t least = 0, most = 0;  ///< samples a step; 0: the first batch, 16 times that
  std::optional<adapt::LearningRateRule> rule;  ///< none: AdaScale of sgd, else square root
  adapt::Objective objective;
  double steps = 0;          ///< of the first batch, that the training has; 0: not known
  std::int64_t samples = 0;  ///< of the data; 0: not known
};

/// A training whose batch, its split and the devices that compute it are decided while it runs. It
/// begins as the chosen plan says. Groups to choose from are the quickest device (of a plan with
/// one device, that), the quickest two, three, ...; each is given what its memory holds at most.
/// The noise of gradients shows between devices, or between micro-batches of a device alone, which
/// has two or as many as the plan says; where its step cannot be done so (batch norm), there is no
/// group of one, and a plan of one device is split over several. Curves are those of the prices,
/// where there are any, corrected by what is seen; without, the plan's devices are learned from
/// nothing.
///
/// Usage errors: a plan that does not split the batch alone; one device whose step cannot be done
/// in micro-batches; a policy that is not there; limits that leave the first batch out; no price
/// where costs count.
Result<std::shared_ptr<Adaptation>> adapt_batch(const ChosenPlan& chosen,
                                                const BatchChoices& choices);

}  // namespace motley::control
