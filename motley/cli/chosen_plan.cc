#include "motley/cli/chosen_plan.h"

#include "motley/cli/teller.h"
#include "motley/report/report.h"

namespace motley::cli {
namespace {

Result<void> make_now(const control::PlanChoices& choices, const control::Outside& outside,
                      ChosenPlan& chosen) {
  MOTLEY_ASSIGN(control::Answer answer, control::find_plan(chosen.inputs, choices, outside));
  if (!answer.planned) return tl::make_unexpected(control::infeasible_error(answer.outcome));
  chosen.text = report::print_outcome(answer.outcome, chosen.inputs.cluster);
  chosen.planned = std::move(*answer.planned);
  chosen.priced = std::move(answer.priced);
  return {};
}

Result<void> read_file(const std::string& file, control::PriceChoices choices, Prices prices,
                       const control::Outside& outside, ChosenPlan& chosen) {
  MOTLEY_ASSIGN(chosen.planned, control::read_plan(file, chosen.inputs));
  control::follow_plan(chosen.planned.plan, chosen.inputs);
  if (prices == Prices::kIfThere) choices.missing = control::Missing::kRefuse;
  auto priced = control::price(chosen.inputs, choices, outside);
  if (priced) chosen.priced = std::move(*priced);
  if (!priced && prices == Prices::kAsAsked) return tl::make_unexpected(priced.error());
  control::show_plan(chosen.inputs, chosen.planned, outside.listener);
  return {};
}

}  // namespace

Result<std::unique_ptr<ChosenPlan>> choose_plan(const PlanOrFile& from, Prices for_file,
                                                const Context& context) {
  Teller teller(context);
  const bool is_made_now = from.file.empty();
  MOTLEY_ASSIGN(
      const control::Question question,
      make_question(from.planning, is_made_now ? GlobalBatch::kGiven : GlobalBatch::kElsewhere));
  MOTLEY_ASSIGN(const control::PlanChoices choices, make_plan_choices(from.planning, context));
  auto chosen = std::make_unique<ChosenPlan>();
  MOTLEY_ASSIGN(chosen->inputs, control::read_inputs(question, teller));
  MOTLEY_RETURN_IF_ERROR(
      is_made_now ? make_now(choices, teller.outside(), *chosen)
                  : read_file(from.file, choices.prices, for_file, teller.outside(), *chosen));
  return chosen;
}

}  // namespace motley::cli
