#pragma once

#include <memory>
#include <optional>
#include <string>

#include "motley/control/planning/planning.h"
#include "motley/control/planning/prediction.h"

namespace motley::control {

/// A plan with everything it was made from. Immovable: its parts refer to each other.
struct ChosenPlan {
  ChosenPlan() = default;
  ChosenPlan(const ChosenPlan&) = delete;
  ChosenPlan& operator=(const ChosenPlan&) = delete;

  Inputs inputs;
  Priced priced;  ///< empty: the plan has no prices, hence no predictions
  Planned planned;
  std::optional<plan::PlanOutcome> outcome;  ///< of the search, if there was one
};

/// Plans as the question asks. Infeasible error: nothing fits.
Result<std::unique_ptr<ChosenPlan>> choose_plan(const Question& question,
                                                const PlanChoices& choices, const Outside& outside);

/// How to price a plan that is read from a file.
enum class Prices {
  kAsAsked,  ///< by the choices; an error if there are no prices
  kIfThere,  ///< without measuring; if some are missing, no prices and a note
};

/// Reads a plan file, which also gives batch, optimizer and lowering.
Result<std::unique_ptr<ChosenPlan>> open_plan(const std::string& file, const Question& question,
                                              PriceChoices choices, Prices prices,
                                              const Outside& outside);

/// Predicts `steps` steps. None without prices; none, with a note, if a time is unknown.
Result<std::optional<Predicted>> find_prediction(const ChosenPlan& chosen, int steps,
                                                 Listener& listener);

}  // namespace motley::control
