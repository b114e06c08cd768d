#include <fmt/format.h>

#include "motley/base/file.h"
#include "motley/base/text.h"
#include "motley/cli/conditions_file.h"
#include "motley/cli/layers.h"
#include "motley/cli/prediction.h"
#include "motley/report/report.h"
#include "motley/simulate/conditions.h"

namespace motley::cli {
namespace {

std::string table(const trace::Trace& trace) {
  const auto busy = trace::busy_share(trace);
  const auto peak = trace::peak_bytes(trace);
  std::string text = fmt::format("step {}, exposed communication {}\n\n  {:<10} {:>6} {:>12}\n",
                                 format_seconds(trace::median_step(trace)),
                                 format_seconds(trace::exposed_communication(trace)), "device",
                                 "busy", "peak memory");
  for (std::size_t d = 0; d < trace.devices.size(); ++d)
    text += fmt::format("  {:<10} {:>5.0f}% {:>12}\n", trace.devices[d], 100 * busy[d],
                        format_bytes(peak[d]));
  return text;
}

Result<simulate::Outcomes> simulate_under(const SimulateOptions& options, const Inputs& inputs,
                                          const search::Costs& costs, const plan::Plan& plan) {
  MOTLEY_ASSIGN(const std::string text, read_file(options.conditions));
  MOTLEY_ASSIGN(const auto conditions, parse_conditions(text, options.conditions));
  MOTLEY_ASSIGN(const auto program, synth::lower(inputs.model.graph, plan, inputs.cluster));
  return simulate::simulate_many(program, costs.model(inputs.cluster), conditions,
                                 {.runs = options.runs, .steps = options.steps});
}

std::string print_distribution(const char* name, const simulate::Distribution& distribution) {
  const auto at = [&](double share) {
    return format_seconds(Seconds(distribution.quantile(share)));
  };
  return fmt::format("  {:<8} {:>10} {:>10} {:>10} {:>10}\n", name,
                     format_seconds(Seconds(distribution.mean())), at(0.1), at(0.5), at(0.9));
}

std::string print_outcomes(const simulate::Outcomes& outcomes, const SimulateOptions& options) {
  std::string text =
      fmt::format("{} runs of {} steps under {}: {} steps lost, {} runs stopped\n", options.runs,
                  options.steps, options.conditions, outcomes.lost_steps, outcomes.stopped_runs);
  text += fmt::format("  {:<8} {:>10} {:>10} {:>10} {:>10}\n", "", "mean", "10 %", "50 %", "90 %");
  text += print_distribution("step", outcomes.step);
  if (outcomes.total.count() > 0) text += print_distribution("run", outcomes.total);
  return text;
}

Json distribution_to_json(const simulate::Distribution& distribution) {
  return {{"mean", distribution.mean()},
          {"p10", distribution.quantile(0.1)},
          {"p50", distribution.quantile(0.5)},
          {"p90", distribution.quantile(0.9)}};
}

void add_outcomes(const simulate::Outcomes& outcomes, Json& object) {
  object["under_conditions"] = {{"step_s", distribution_to_json(outcomes.step)},
                                {"total_s", distribution_to_json(outcomes.total)},
                                {"lost_steps", outcomes.lost_steps},
                                {"stopped_runs", outcomes.stopped_runs}};
}

}  // namespace

Result<int> simulate_verb(const SimulateOptions& options, const Context& context) {
  if (options.planning.layers.is_given()) return simulate_layers(options, context);
  PlanningOptions planning = options.planning;
  plan::Plan plan;
  std::shared_ptr<const search::Costs> costs;
  Inputs inputs;
  if (options.plan.empty()) {
    MOTLEY_ASSIGN(Planned planned, make_plan(planning, context));
    if (!planned.outcome.plan) return tl::make_unexpected(infeasible_error(planned.outcome));
    plan = *planned.outcome.plan;
    inputs = std::move(planned.inputs);
    costs = planned.costs;
  } else {
    if (planning.global_batch == 0) planning.global_batch = 1;  // the plan file has its own
    MOTLEY_ASSIGN(inputs, read_inputs(planning, context));
    MOTLEY_ASSIGN(plan, read_plan(options.plan, inputs));
    inputs.global_batch = plan.global_batch;
    inputs.lowering = {plan.optimizer, plan.batch_norm, plan.bucket_bytes};
    MOTLEY_ASSIGN(costs, find_costs(inputs, planning, context));
    MOTLEY_RETURN_IF_ERROR(show_plan(inputs, plan, context));
  }
  MOTLEY_ASSIGN(const Prediction prediction, predict(inputs, *costs, plan, options.steps));
  const trace::Trace& trace = prediction.trace;
  phase(context, "simulate", [&] { return trace::print_trace(trace); });
  if (!options.trace.empty())
    MOTLEY_RETURN_IF_ERROR(write_file_atomic(options.trace, report::print_chrome_trace(trace)));
  Json busy = Json::object(), peak = Json::object();
  for (std::size_t d = 0; d < trace.devices.size(); ++d) {
    busy[trace.devices[d]] = trace::busy_share(trace)[d];
    peak[trace.devices[d]] = trace::peak_bytes(trace)[d].value;
  }
  Json object = {{"step_s", prediction.step.value},
                 {"peak_bytes", peak},
                 {"busy_share", busy},
                 {"exposed_comm_s", trace::exposed_communication(trace).value}};
  add_prediction(prediction, object);
  std::string under;
  if (!options.conditions.empty()) {
    MOTLEY_ASSIGN(const simulate::Outcomes outcomes, simulate_under(options, inputs, *costs, plan));
    under = "\n" + print_outcomes(outcomes, options);
    add_outcomes(outcomes, object);
  }
  if (context.print_phase.empty() || context.json)
    context.result(table(trace) + "\n" + print_prediction(prediction) + under, object);
  return kDone;
}

}  // namespace motley::cli
