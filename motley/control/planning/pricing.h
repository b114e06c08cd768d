#pragma once

#include <memory>
#include <string>

#include "motley/control/outside.h"
#include "motley/control/planning/inputs.h"
#include "motley/cost/measured/profile_store.h"
#include "motley/search/split/step_evaluator.h"

namespace motley::control {

/// What to do about times that nobody has measured.
enum class Missing {
  kMeasure,  ///< measure them, which needs workers and the devices
  kRefuse,   ///< an error that names them
  kModel,    ///< take them from what other models took
};

struct PriceChoices {
  std::string profiles;  ///< path of the profile store; it is made where it is not there
  Missing missing = Missing::kMeasure;
  int rounds = 3;  ///< how often what is missing is measured
};

/// Cost tables of the inputs, and what prices plans with them. The evaluator refers to the inputs.
struct Priced {
  std::shared_ptr<const search::Costs> costs;
  std::shared_ptr<const search::StepEvaluator> evaluator;
};

/// Loads the times of the inputs' model on its devices, and measures first what is missing if that
/// is wanted. Usage errors name what was never measured ("....missing-profile"), with the command
/// that measures it. Learns what GPUs hold beside tensors, and what plans are to leave free. Costs
/// one lowering a profiled batch and device key.
Result<Priced> price(Inputs& inputs, const PriceChoices& choices, const Outside& outside);

/// Puts what was measured of GPUs' memory beside tensors into the inputs' devices; where nothing
/// was, the usual figures stay (cost/device_keys.h).
Result<void> learn_framework(const cost::ProfileStore& store, const std::string& torch,
                             Inputs& inputs);
/// The same before there are prices; without a GPU or a store it does nothing.
Result<void> learn_framework(const PriceChoices& choices, const Outside& outside, Inputs& inputs);

/// Has plans leave memory free on devices of kinds that nobody measured (cost::Origin::kCarried,
/// kKinds): the upper end of what is predicted is to fit (prediction.h), into what counts as free
/// where the memory is the kind's as printed (cluster/kinds.h). Of others all is room.
void leave_spare(const search::Costs& costs, Inputs& inputs);

/// The store, in a folder that is made if need be.
Result<cost::ProfileStore> open_store(const std::string& path);

}  // namespace motley::control
