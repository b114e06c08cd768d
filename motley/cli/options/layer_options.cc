#include "motley/cli/options/layer_options.h"

#include <fmt/format.h>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/cli/context/progress_printer.h"
#include "motley/cli/print/print_answer.h"
#include "motley/cli/print/print_stages.h"
#include "motley/graph/graph_text.h"
#include "motley/program/program_text.h"
#include "motley/report/report.h"
#include "peers/spaces/stage_spaces.h"

namespace motley::cli {
namespace {

Result<void> show_phases(const control::SimulatedLayers& simulated, const Context& context) {
  ProgressPrinter printer(context);
  MOTLEY_RETURN_IF_ERROR(printer.phase(
      control::Phase::kLoad, [&] { return graph::print_graph(simulated.model->layers.graph); }));
  MOTLEY_RETURN_IF_ERROR(printer.phase(control::Phase::kSearch, [&] {
    return plan::print_plan(simulated.plan, simulated.cluster);
  }));
  MOTLEY_RETURN_IF_ERROR(printer.phase(control::Phase::kSynth,
                                       [&] { return program::print_program(simulated.program); }));
  return printer.phase(control::Phase::kSimulate,
                       [&] { return trace::print_trace(simulated.trace); });
}

/// Returns for each stage, over all replicas, the span that ends last and the highest memory peak.
std::vector<control::LayerSpan> worst_spans(const control::SimulatedLayers& simulated) {
  std::vector<control::LayerSpan> worst;
  for (const control::LayerSpan& span : simulated.spans) {
    if (worst.size() <= span.region) worst.resize(span.region + 1);
    control::LayerSpan& known = worst[span.region];
    const Bytes peak = std::max(known.memory.total, span.memory.total);
    if (span.last > known.last) known = span;
    known.memory.total = peak;
  }
  return worst;
}

}  // namespace

std::string layers_note(const std::string& model) {
  return fmt::format(
      "from the layer profile of {}: step times of pipelines were off by 4.5 % on average and 17 % "
      "at worst (make bench-accuracy)\n",
      model);
}

bool finds_layer_stages(const PlanningOptions& options) {
  return options.layers.is_given() &&
         (options.planner == "stages" || peers::find_stage_space(options.planner));
}

Result<int> plan_layer_stages(const PlanningOptions& options, const std::string& output,
                              const Context& context) {
  if (options.cluster.empty())
    return usage_error("cli.cluster", "which devices? give -C CLUSTER.toml");
  if (options.global_batch < 1)
    return usage_error("cli.global-batch", "how many samples a step? give --global-batch N");
  const auto space = peers::find_stage_space(options.planner);
  MOTLEY_ASSIGN(const cluster::Cluster cluster, cluster::read_cluster(options.cluster));
  control::LayerFiles files = options.layers;
  files.may_recompute |= space == peers::StageSpace::kHarp;
  const control::FindStages find = [&](const search::StageQuestion& question) {
    return space ? peers::find_restricted(*space, question) : search::find_stage_plan(question);
  };
  MOTLEY_ASSIGN(const control::StageAnswer answer,
                control::plan_stages(files, cluster, options.global_batch, *context.clock, find));
  Json object = stages_to_json(answer);
  object["planner"] = options.planner;
  std::string text = print_stages(answer);
  if (answer.outcome.best) {
    // Programs of all devices are made only to be shown.
    const bool is_shown =
        !context.print_phase.empty() || !context.dump_dir.empty() || !context.stop_after.empty();
    const auto wanted = is_shown ? control::Simulated::kAll : control::Simulated::kStep;
    MOTLEY_ASSIGN(const control::SimulatedLayers simulated,
                  control::simulate_stages(options.layers, cluster, *answer.outcome.best,
                                           *answer.costs, wanted));
    if (is_shown) MOTLEY_RETURN_IF_ERROR(show_phases(simulated, context));
    text += fmt::format("its program takes {} (the search took it for {:+.1f} %)\n",
                        format_seconds(simulated.step),
                        100 * (answer.outcome.best->price.step / simulated.step - 1));
    object["program_step_s"] = simulated.step.value;
    if (!output.empty()) {
      MOTLEY_RETURN_IF_ERROR(
          write_file_atomic(output, plan::print_plan(simulated.plan, simulated.cluster)));
      text += fmt::format("wrote {}\n", output);
    }
  }
  if (context.print_phase.empty() || context.json)
    context.result(text + "\n" + layers_note(options.layers.model), object);
  return answer.outcome.best ? kDone : kInfeasible;
}

Result<int> simulate_layers(const SimulatedPlan& asked, const control::LayerFiles& layers,
                            const Context& context) {
  if (asked.plan.empty())
    return usage_error("cli.layers", "simulate with layers wants --plan PLAN.json");
  MOTLEY_ASSIGN(const control::SimulatedLayers simulated,
                control::simulate_layers(layers, asked.plan, asked.cluster, asked.steps));
  MOTLEY_RETURN_IF_ERROR(show_phases(simulated, context));
  if (!asked.trace.empty())
    MOTLEY_RETURN_IF_ERROR(
        write_file_atomic(asked.trace, report::print_chrome_trace(simulated.trace)));
  const std::vector<control::LayerSpan> spans = worst_spans(simulated);
  std::string text = fmt::format("step {}, {} {}\n\n  {:<6} {:>10} {:>10} {:>10} {:>10}  {}\n",
                                 format_seconds(simulated.step), spans.size(),
                                 spans.size() == 1 ? "stage" : "stages", "stage", "compute",
                                 "begins", "last pass", "idle", "peak memory");
  Json stages = Json::array();
  Bytes peak;
  for (std::size_t stage = 0; stage < spans.size(); ++stage) {
    const control::LayerSpan& span = spans[stage];
    const Seconds idle = simulated.step - span.compute;
    const Bytes total = span.memory.total + span.held;
    peak = std::max(peak, total);
    text += fmt::format("  {:<6} {:>10} {:>10} {:>10} {:>10}  {}\n", stage,
                        format_seconds(span.compute), format_seconds(span.first),
                        format_seconds(span.last), format_seconds(idle), format_bytes(total));
    stages.push_back({{"compute_s", span.compute.value},
                      {"begins_s", span.first.value},
                      {"last_pass_s", span.last.value},
                      {"idle_s", idle.value},
                      {"peak_bytes", total.value}});
  }
  text += fmt::format("\n{} of exchanging gradients after the last pass\n",
                      format_seconds(simulated.exchange));
  Json object = {{"step_s", simulated.step.value},
                 {"exchange_s", simulated.exchange.value},
                 {"peak_bytes", peak.value},
                 {"stages", stages}};
  if (simulated.estimate) {
    text += fmt::format("the search's estimate {} ({:+.1f} %)\n",
                        format_seconds(simulated.estimate->step),
                        100 * (simulated.estimate->step / simulated.step - 1));
    object["estimate_s"] = simulated.estimate->step.value;
  }
  if (simulated.measured)
    text += fmt::format("measured {}: predicted {:+.1f} %\n", format_seconds(*simulated.measured),
                        100 * (simulated.step.value / simulated.measured->value - 1));
  object["why"] = simulated.notes;
  for (const std::string& note : simulated.notes) text += note + "\n";
  if (context.print_phase.empty() || context.json)
    context.result(text + "\n" + layers_note(simulated.model->profile->model), object);
  return kDone;
}

}  // namespace motley::cli
