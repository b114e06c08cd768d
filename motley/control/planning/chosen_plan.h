#pragma once

#include <memory>
#include <optional>
#include <string>

#include "motley/control/planning/planning.h"
#include "motley/control/planning/prediction.h"

namespace motley::control {

/// A plan with all that it was made from. Parts refer to each other: it stays where it was made.
struct ChosenPlan {
  ChosenPlan() = default;
  ChosenPlan(const ChosenPlan&) = delete;
  ChosenPlan& operator=(const ChosenPlan&) = delete;

  Inputs inputs;
  Priced priced;  ///< empty: nothing prices the plan, so nothing can be predicted
  Planned planned;
  std::optional<plan::PlanOutcome> outcome;  ///< of the search, when planned now
};

/// Plans what the question asks for. That nothing fits is an error here (infeasible).
Result<std::unique_ptr<ChosenPlan>> choose_plan(const Question& question,
                                                const PlanChoices& choices, const Outside& outside);

/// What to do where a plan that is read has no prices.
enum class Prices {
  kAsAsked,  ///< by the choices; an error if there are none
  kIfThere,  ///< nothing is measured for them; if some are missing, there are none, and a note
};

/// Reads a plan file for the model and the devices of the question; batch, optimizer and how it is
/// lowered are the plan's.
Result<std::unique_ptr<ChosenPlan>> open_plan(const std::string& file, const Question& question,
                                              PriceChoices choices, Prices prices,
                                              const Outside& outside);

/// The prediction of so many steps; none where the plan has no prices, and none, with a note, where
/// its times are not known.
Result<std::optional<Predicted>> find_prediction(const ChosenPlan& chosen, int steps,
                                                 Listener& listener);

}  // namespace motley::control
