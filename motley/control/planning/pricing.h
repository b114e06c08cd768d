#pragma once

#include <memory>
#include <string>

#include "motley/control/outside.h"
#include "motley/control/planning/inputs.h"
#include "motley/cost/measured/profile_store.h"
#include "motley/search/split/step_evaluator.h"

namespace motley::control {

enum class Missing {
  kMeasure,  ///< measure them, which needs workers and the devices
  kRefuse,   ///< report an error that names them
  kModel,    ///< estimate them from other models' times
};

struct PriceChoices {
  std::string profiles;  ///< path of the profile store; created if missing
  Missing missing = Missing::kMeasure;
  int rounds = 3;  ///< of measuring what is missing
};

/// The inputs' cost tables and their evaluator, which refers to the inputs.
struct Priced {
  std::shared_ptr<const search::Costs> costs;
  std::shared_ptr<const search::StepEvaluator> evaluator;
};

/// Loads the times of the inputs' model on its devices; first measures what is missing, if allowed.
/// Usage errors name what was never measured ("....missing-profile") and the command that measures
/// it. Sets the memory that GPUs need beside tensors and the memory that plans leave free. Costs
/// one lowering per profiled batch and device key.
Result<Priced> price(Inputs& inputs, const PriceChoices& choices, const Outside& outside);

/// Sets the measured memory of GPUs beside tensors; else usual figures stay (cost/device_keys.h).
Result<void> learn_framework(const cost::ProfileStore& store, const std::string& torch,
                             Inputs& inputs);
/// Does the same before there are prices; does nothing without a GPU or a store.
Result<void> learn_framework(const PriceChoices& choices, const Outside& outside, Inputs& inputs);

/// Makes plans leave memory free on kinds that were never measured (cost::Origin::kCarried,
/// kKinds): the upper end of the prediction (prediction.h) must fit into the free part of the
/// memory, which is a fraction of a kind's nominal size (cluster/kinds.h). Measured kinds have it
/// all.
void leave_spare(const search::Costs& costs, Inputs& inputs);

/// Opens the store and creates its folder if necessary.
Result<cost::ProfileStore> open_store(const std::string& path);

}  // namespace motley::control
