#include <fmt/format.h>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/cli/context/progress_printer.h"
#include "motley/cli/options/layer_options.h"
#include "motley/cli/options/planning_options.h"
#include "motley/cli/options/rehearsal_options.h"
#include "motley/cli/print/print_prediction.h"
#include "motley/report/report.h"
#include "motley/simulate/conditions_file.h"

namespace motley::cli {
namespace {

constexpr int kPredictedSteps = 3;  // for a training that adapts

struct SimulateOptions {
  PlanOrFile plan;
  std::string trace;
  int steps = 3;
  std::string conditions;
  int runs = 100;
  RehearsalOptions rehearsal;
};

std::vector<Flag> simulate_flags(SimulateOptions& options) {
  std::vector<Flag> flags = planning_flags(options.plan.planning);
  for (Flag& flag : layer_flags(options.plan.planning)) flags.push_back(std::move(flag));
  flags.insert(
      flags.end(),
      {{"--plan", &options.plan.file, "plan file"},
       survive_flag(
           options.plan.planning,
           "number of devices that an elastic run may lose at once: adds mirrors to the plan"),
       {"--steps", &options.steps, "steps to simulate", kShown},
       {"--conditions", &options.conditions,
        "file of jitter, slow-downs and absences: prints distributions, or, with --adapt, "
        "what the training meets"},
       {"--runs", &options.runs, "number of simulations under --conditions", kShown},
       {"--trace", &options.trace, "Chrome/Perfetto trace to write"}});
  for (Flag& flag : rehearsal_flags(options.rehearsal)) flags.push_back(std::move(flag));
  return flags;
}

std::int64_t peak_bytes(const control::Predicted& predicted, std::size_t rank) {
  return static_cast<std::int64_t>(predicted.devices[rank].peak.value);
}

std::string table(const control::Predicted& predicted) {
  const trace::Trace& trace = predicted.trace;
  const auto busy = trace::busy_share(trace);
  std::string text = fmt::format("step {}, exposed communication {}\n\n  {:<10} {:>6} {:>12}\n",
                                 format_seconds(trace::median_step(trace)),
                                 format_seconds(trace::exposed_communication(trace)), "device",
                                 "busy", "peak memory");
  for (std::size_t d = 0; d < trace.devices.size(); ++d)
    text += fmt::format("  {:<10} {:>5.0f}% {:>12}\n", trace.devices[d], 100 * busy[d],
                        format_bytes(Bytes(peak_bytes(predicted, d))));
  return text;
}

Result<simulate::Conditions> read_conditions(const std::string& path) {
  if (path.empty()) return simulate::Conditions();
  MOTLEY_ASSIGN(const std::string text, read_file(path));
  return simulate::parse_conditions(text, path);
}

Result<simulate::Outcomes> simulate_under(const SimulateOptions& options,
                                          const simulate::Conditions& conditions,
                                          const control::ChosenPlan& chosen) {
  return simulate::simulate_many(*chosen.planned.program,
                                 *chosen.priced.costs->model(chosen.inputs.cluster), conditions,
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

Json trace_to_json(const control::Predicted& predicted) {
  const trace::Trace& trace = predicted.trace;
  const std::vector<double> busy_share = trace::busy_share(trace);
  Json busy = Json::object(), peak = Json::object();
  for (std::size_t d = 0; d < trace.devices.size(); ++d) {
    busy[trace.devices[d]] = busy_share[d];
    peak[trace.devices[d]] = peak_bytes(predicted, d);
  }
  return {{"step_s", predicted.step.value},
          {"peak_bytes", peak},
          {"busy_share", busy},
          {"exposed_comm_s", trace::exposed_communication(trace).value}};
}

Result<int> simulate_plan(const SimulateOptions& options, const Context& context) {
  const bool decides = !options.rehearsal.adapt.empty();
  MOTLEY_RETURN_IF_ERROR(check_rehearsal(options.rehearsal, options.steps));
  if (options.plan.planning.layers.is_given() && decides)
    return usage_error("cli.adapt",
                       "--adapt goes with a model's own plans; leave out the layer profile");
  if (options.plan.planning.layers.is_given() && options.plan.planning.survive != 0)
    return usage_error("cli.survive",
                       "--survive goes with a model's own plans; leave out the layer profile");
  if (options.plan.planning.layers.is_given()) {
    MOTLEY_RETURN_IF_ERROR(refuse_exchanges(options.plan.planning));
    return simulate_layers(
        {options.plan.file, options.plan.planning.cluster, options.steps, options.trace},
        options.plan.planning.layers, context);
  }
  MOTLEY_ASSIGN(const auto conditions, read_conditions(options.conditions));
  MOTLEY_ASSIGN(const auto chosen, choose_plan(options.plan, control::Prices::kAsAsked, context));
  MOTLEY_ASSIGN(const control::Predicted predicted,
                control::predict(chosen->inputs, chosen->planned, *chosen->priced.costs,
                                 decides ? kPredictedSteps : options.steps));
  const trace::Trace& trace = predicted.trace;
  ProgressPrinter printer(context);
  MOTLEY_RETURN_IF_ERROR(
      printer.phase(control::Phase::kSimulate, [&] { return trace::print_trace(trace); }));
  if (!options.trace.empty())
    MOTLEY_RETURN_IF_ERROR(write_file_atomic(options.trace, report::print_chrome_trace(trace)));
  Json object = trace_to_json(predicted);
  add_prediction(predicted, object);
  std::string under;
  if (decides) {
    MOTLEY_ASSIGN(control::PlanChoices plan_choices,
                  make_plan_choices(options.plan.planning, context));
    MOTLEY_ASSIGN(const Rehearsals rehearsals,
                  rehearse_training(options.rehearsal, *chosen, predicted,
                                    {.steps = options.steps, .conditions = conditions},
                                    std::move(plan_choices), printer));
    under = "\n" + print_rehearsals(rehearsals);
    add_rehearsals(rehearsals, object);
  } else if (!options.conditions.empty()) {
    MOTLEY_ASSIGN(const simulate::Outcomes outcomes, simulate_under(options, conditions, *chosen));
    under = "\n" + print_outcomes(outcomes, options);
    add_outcomes(outcomes, object);
  }
  if (context.print_phase.empty() || context.json)
    context.result(table(predicted) + "\n" + print_prediction(predicted) + under, object);
  return kDone;
}

}  // namespace

Verb simulate_verb() {
  return make_verb("simulate", "simulate the steps of a plan", simulate_flags, simulate_plan);
}

}  // namespace motley::cli
