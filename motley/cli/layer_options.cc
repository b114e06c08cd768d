#include "motley/cli/layer_options.h"

#include <fmt/format.h>

#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/cli/print_answer.h"
#include "motley/report/report.h"

namespace motley::cli {
namespace {

/// What a layer profile's predictions were off by (docs/benchmarks.md, "Accuracy").
std::string layers_note(const cost::LayerProfile& profile) {
  return fmt::format(
      "from the layer profile of {}: no overlap, no workspace; step times of pipelines were off by "
      "4.5 % on average and 17 % at worst (make bench-accuracy)\n",
      profile.model);
}

std::string stage_text(std::size_t stage, const cost::PipelineStep& step) {
  const cost::StageTimes& times = step.times[stage];
  return fmt::format("  {:<6} {:>10} {:>10} {:>10} {:>10}  {}\n", stage,
                     format_seconds(times.compute), format_seconds(times.communication),
                     format_seconds(times.waiting), format_seconds(times.bubble),
                     format_bytes(step.memory[stage].total()));
}

Json stage_to_json(std::size_t stage, const cost::PipelineStep& step) {
  const cost::StageTimes& times = step.times[stage];
  return {{"compute_s", times.compute.value},
          {"exposed_comm_s", times.communication.value},
          {"waiting_s", times.waiting.value},
          {"bubble_s", times.bubble.value},
          {"peak_bytes", step.memory[stage].total().value}};
}

}  // namespace

std::vector<Flag> layer_flags(LayerOptions& options) {
  control::LayerFiles& files = options.files;
  std::vector<Flag> flags = {
      {"--layer-times", &files.times, "Sailor's KIND=profile.json; may be repeated"},
      {"--layer-sizes", &files.sizes, "Sailor's llm_info.json"},
      {"--layer-model", &files.model, "the model's name in there"},
      {"--layer-network", &files.network, "Sailor's network fits, for pipelines"},
      {"--devices-per-host", &files.devices_per_host, "of a pipeline's hosts", kShown},
      {"--layer-metis", &files.metis, "Metis' DeviceType.KIND_tpN_bsM.json files"}};
  for (Flag& flag : flags) flag.group = "Imported layer profile, in place of -m";
  return flags;
}

Result<int> plan_layers(const PlanningOptions& options, const LayerOptions& layers,
                        const Context& context) {
  if (options.cluster.empty())
    return usage_error("cli.cluster", "which devices? give -C CLUSTER.toml");
  if (options.global_batch < 1)
    return usage_error("cli.global-batch", "how many samples a step? give --global-batch N");
  MOTLEY_ASSIGN(const control::PlanChoices choices, make_plan_choices(options, context));
  MOTLEY_ASSIGN(const cost::LayerProfile profile, control::read_layers(layers.files));
  MOTLEY_ASSIGN(const cluster::Cluster cluster, cluster::read_cluster(options.cluster));
  MOTLEY_ASSIGN(
      const control::LayerAnswer answer,
      control::plan_layers(profile, cluster, options.global_batch, choices, *context.clock));
  Json object = outcome_to_json(answer.outcome, cluster, answer.elapsed_s);
  object["interval_basis"] = layers_note(profile);
  if (!answer.outcome.plan) return report_infeasible(answer.outcome, object, context);
  context.result(report::print_outcome(answer.outcome, cluster) + "\n" + layers_note(profile),
                 object);
  return kDone;
}

Result<int> simulate_layers(const std::string& plan_path, const LayerOptions& layers,
                            const Context& context) {
  MOTLEY_ASSIGN(const cost::LayerProfile profile, control::read_layers(layers.files));
  if (plan_path.empty() || layers.files.network.empty())
    return usage_error("cli.layers",
                       "simulate with layers wants --plan PIPELINE.json and --layer-network FILE");
  MOTLEY_ASSIGN(const auto predicted, control::simulate_pipeline(profile, plan_path, layers.files));
  const cost::PipelineStep& step = predicted.step;
  std::string text = fmt::format("step {}, {} stages\n\n  {:<6} {:>10} {:>10} {:>10} {:>10}  {}\n",
                                 format_seconds(step.step), step.times.size(), "stage", "compute",
                                 "exchange", "waiting", "bubble", "peak memory");
  Json stages = Json::array();
  for (std::size_t stage = 0; stage < step.times.size(); ++stage) {
    text += stage_text(stage, step);
    stages.push_back(stage_to_json(stage, step));
  }
  if (predicted.measured)
    text += fmt::format("\nmeasured {}: predicted {:+.1f} %\n", format_seconds(*predicted.measured),
                        100 * (step.step.value / predicted.measured->value - 1));
  context.result(
      text + "\n" + layers_note(profile),
      {{"step_s", step.step.value}, {"peak_bytes", step.peak.value}, {"stages", stages}});
  return kDone;
}

}  // namespace motley::cli
