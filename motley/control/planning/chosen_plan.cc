#include "motley/control/planning/chosen_plan.h"

namespace motley::control {

Result<std::unique_ptr<ChosenPlan>> choose_plan(const Question& question,
                                                const PlanChoices& choices,
                                                const Outside& outside) {
  auto chosen = std::make_unique<ChosenPlan>();
  MOTLEY_ASSIGN(chosen->inputs, read_inputs(question, outside.listener));
  MOTLEY_ASSIGN(Answer answer, find_plan(chosen->inputs, choices, outside));
  if (!answer.outcome.plan) return tl::make_unexpected(infeasible_error(answer.outcome));
  if (!answer.planned) {
    MOTLEY_ASSIGN(answer.planned, lower_plan(chosen->inputs, *answer.outcome.plan));
  }
  chosen->priced = std::move(answer.priced);
  chosen->planned = std::move(*answer.planned);
  chosen->outcome = std::move(answer.outcome);
  return chosen;
}

Result<std::unique_ptr<ChosenPlan>> open_plan(const std::string& file, const Question& question,
                                              PriceChoices choices, Prices prices,
                                              const Outside& outside) {
  auto chosen = std::make_unique<ChosenPlan>();
  MOTLEY_ASSIGN(chosen->inputs, read_inputs(question, outside.listener));
  MOTLEY_RETURN_IF_ERROR(learn_framework(choices, outside, chosen->inputs));
  MOTLEY_ASSIGN(chosen->planned, read_plan(file, chosen->inputs));
  const bool may_lack = prices == Prices::kIfThere;
  if (may_lack && choices.missing == Missing::kMeasure) choices.missing = Missing::kRefuse;
  if (auto priced = price(chosen->inputs, choices, outside)) {
    chosen->priced = std::move(*priced);
  } else if (may_lack && priced.error().code.ends_with(".missing-profile")) {
    outside.listener.note("no prediction: " + priced.error().message);
  } else {
    return tl::make_unexpected(priced.error());
  }
  MOTLEY_RETURN_IF_ERROR(show_plan(chosen->inputs, chosen->planned.plan, outside.listener));
  return chosen;
}

Result<std::optional<Predicted>> find_prediction(const ChosenPlan& chosen, int steps,
                                                 Listener& listener) {
  if (!chosen.priced.costs) return std::optional<Predicted>();
  return if_known(predict(chosen.inputs, chosen.planned, *chosen.priced.costs, steps), listener);
}

}  // namespace motley::control
