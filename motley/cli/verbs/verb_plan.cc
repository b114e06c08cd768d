#include <fmt/format.h>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/cli/context/progress_printer.h"
#include "motley/cli/options/hap_models.h"
#include "motley/cli/options/layer_options.h"
#include "motley/cli/options/market_options.h"
#include "motley/cli/options/planning_options.h"
#include "motley/cli/print/print_answer.h"
#include "motley/cli/print/print_prediction.h"
#include "motley/cli/print/print_what_if.h"
#include "motley/report/report.h"

namespace motley::cli {
namespace {

struct PlanOptions {
  PlanningOptions planning;
  HapFlags hap;
  MarketOptions market;
  std::int64_t samples = 0;
  std::string output;
};

std::vector<Flag> plan_flags(PlanOptions& options) {
  std::vector<Flag> flags = planning_flags(options.planning);
  for (Flag& flag : layer_flags(options.planning)) flags.push_back(std::move(flag));
  for (Flag& flag : hap_flags(options.hap)) flags.push_back(std::move(flag));
  for (Flag& flag : market_flags(options.market)) flags.push_back(std::move(flag));
  flags.push_back(survive_flag(
      options.planning,
      "number of devices that run --elastic may lose at once: adds mirrors to the plan"));
  flags.push_back(samples_flag(options.samples));
  flags.push_back({"-o,--output", &options.output, "plan file to write"});
  return flags;
}

std::string add_costs(const control::Inputs& inputs, const plan::PlanOutcome& outcome,
                      std::int64_t samples, Json& object) {
  const auto per_hour = cluster::price_per_hour(inputs.cluster, inputs.devices);
  const Seconds step = outcome.predicted_step;
  const auto epoch = cost_per_epoch(per_hour, step, inputs.global_batch, samples);
  object["price_per_hour"] = per_hour ? Json(*per_hour) : Json(nullptr);
  object["cost_per_epoch"] = epoch ? Json(*epoch) : Json(nullptr);
  const std::string text = cost_text(per_hour, step, inputs.global_batch, samples);
  return text.empty() ? "" : "\n  cost: " + text + "\n";
}

/// Refuses --survive and --sync where plans have no mirrors and owners: for market machines, layers
/// and HAP's workloads.
Result<void> refuse_flags_of_models(const PlanOptions& options) {
  const bool is_of_model = !options.market.is_given() && !options.planning.layers.is_given() &&
                           !asks_for_hap(options.planning, options.hap);
  if (options.planning.survive != 0 && !is_of_model)
    return usage_error("cli.survive",
                       "--survive goes with plans of a model on a cluster (-m, -C); leave it out");
  return is_of_model ? Result<void>() : refuse_exchanges(options.planning);
}

Result<int> plan_model(const PlanOptions& options, const Context& context) {
  MOTLEY_RETURN_IF_ERROR(refuse_flags_of_models(options));
  if (options.market.is_given()) return plan_to_rent(options.market, options.planning, context);
  if (options.market.has_others())
    return usage_error(
        "cli.market", "--deadline, --budget and --steps say which machines to rent: give --market");
  if (finds_layer_stages(options.planning))
    return plan_layer_stages(options.planning, options.output, context);
  if (asks_for_hap(options.planning, options.hap))
    return plan_hap(options.planning, options.hap, options.output, context);
  MOTLEY_RETURN_IF_ERROR(check_samples(options.samples));
  ProgressPrinter printer(context);
  MOTLEY_ASSIGN(const auto question, make_question(options.planning, GlobalBatch::kGiven));
  MOTLEY_ASSIGN(const auto choices, make_plan_choices(options.planning, context));
  MOTLEY_ASSIGN(control::Inputs inputs, control::read_inputs(question, printer));
  MOTLEY_ASSIGN(control::Answer answer, control::find_plan(inputs, choices, printer.outside()));
  plan::PlanOutcome& outcome = answer.outcome;
  Json object = outcome_to_json(outcome, inputs.cluster, answer.elapsed_s);
  const std::string note = inputs.layers ? layers_note(inputs.graph().name) : "";
  if (inputs.layers) object["interval_basis"] = note;
  if (!outcome.plan) return report_infeasible(outcome, object, context);
  if (!options.output.empty())
    MOTLEY_RETURN_IF_ERROR(
        write_file_atomic(options.output, plan::print_plan(*outcome.plan, inputs.cluster)));
  std::optional<control::Predicted> predicted;  // another tool's times were never run here
  if (!inputs.layers) {
    MOTLEY_ASSIGN(predicted, control::if_known(
                                 control::foresee(inputs, *outcome.plan, answer.priced), printer));
  }
  if (predicted) {
    control::add_variation(*predicted, outcome);
    object = outcome_to_json(outcome, inputs.cluster, answer.elapsed_s);
    add_prediction(*predicted, object);
  }
  std::string text = report::print_outcome(outcome, inputs.cluster);
  text += add_costs(inputs, outcome, options.samples, object);
  if (inputs.layers) text += "\n" + note;
  if (predicted) text += "\n" + print_prediction(*predicted);
  if (!options.output.empty()) text += fmt::format("\nwrote {}\n", options.output);
  if (context.print_phase.empty() || context.json) context.result(text, object);
  return kDone;
}

}  // namespace

Verb plan_verb() {
  return led(make_verb("plan", "find the fastest plan; predict its time and memory", plan_flags,
                       plan_model));
}

}  // namespace motley::cli
