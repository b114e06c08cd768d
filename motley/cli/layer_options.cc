#include "motley/cli/layer_options.h"

#include <fmt/format.h>

#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/cli/print_answer.h"
#include "motley/cli/print_stages.h"
#include "motley/report/report.h"

namespace motley::cli {
namespace {

/// What a layer profile's predictions were off by (docs/benchmarks.md, "Accuracy").
std::string layers_note(const std::string& model) {
  return fmt::format(
      "from the layer profile of {}: step times of pipelines were off by 4.5 % on average and 17 % "
      "at worst (make bench-accuracy)\n",
      model);
}

/// A stage over all replicas: of the one that ends last, and the fullest.
search::StageSpan worst_span(const search::StagePrice& price, std::size_t stage) {
  search::StageSpan worst = price.spans[0][stage];
  for (const auto& replica : price.spans) {
    const Bytes peak = std::max(worst.peak, replica[stage].peak);
    if (replica[stage].end > worst.end) worst = replica[stage];
    worst.peak = peak;
  }
  return worst;
}

}  // namespace

std::vector<Flag> layer_flags(LayerOptions& options) {
  control::LayerFiles& files = options.files;
  std::vector<Flag> flags = {
      {"--layer-times", &files.times, "Sailor's KIND=profile.json; may be repeated"},
      {"--layer-sizes", &files.sizes, "Sailor's llm_info.json"},
      {"--layer-model", &files.model, "the model's name in there"},
      {"--layer-network", &files.network, "Sailor's network fits; else the cluster's links count"},
      {"--layer-pairs", &files.pairs, "Sailor's network fits between unlike kinds"},
      {"--layer-zone", &files.zone, "the zone of them that counts"},
      {"--layer-recompute", &files.may_recompute,
       "stages may compute forwards twice to save memory"},
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
  const auto space = search::find_stage_space(options.planner);
  if (options.planner == "stages" || space) {
    MOTLEY_ASSIGN(const cluster::Cluster cluster, cluster::read_cluster(options.cluster));
    MOTLEY_ASSIGN(
        const control::StageAnswer answer,
        control::plan_stages(layers.files, cluster, options.global_batch, *context.clock, space));
    Json object = stages_to_json(answer);
    object["planner"] = options.planner;
    context.result(print_stages(answer) + "\n" + layers_note(layers.files.model), object);
    return answer.outcome.best ? kDone : kInfeasible;
  }
  MOTLEY_ASSIGN(const control::PlanChoices choices, make_plan_choices(options, context));
  MOTLEY_ASSIGN(const cost::LayerProfile profile, control::read_layers(layers.files));
  MOTLEY_ASSIGN(const cluster::Cluster cluster, cluster::read_cluster(options.cluster));
  MOTLEY_ASSIGN(
      const control::LayerAnswer answer,
      control::plan_layers(profile, cluster, options.global_batch, choices, *context.clock));
  Json object = outcome_to_json(answer.outcome, cluster, answer.elapsed_s);
  object["interval_basis"] = layers_note(profile.model);
  if (!answer.outcome.plan) return report_infeasible(answer.outcome, object, context);
  context.result(report::print_outcome(answer.outcome, cluster) + "\n" + layers_note(profile.model),
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
  const search::StagePrice& price = predicted.price;
  const std::size_t count = price.spans[0].size();
  std::string text = fmt::format("step {}, {} stages\n\n  {:<6} {:>10} {:>10} {:>10} {:>10}  {}\n",
                                 format_seconds(price.step), count, "stage", "compute", "begins",
                                 "last pass", "idle", "peak memory");
  Json stages = Json::array();
  for (std::size_t stage = 0; stage < count; ++stage) {
    const search::StageSpan span = worst_span(price, stage);
    const Seconds idle = price.step - span.compute;
    text += fmt::format("  {:<6} {:>10} {:>10} {:>10} {:>10}  {}\n", stage,
                        format_seconds(span.compute), format_seconds(span.first),
                        format_seconds(span.last), format_seconds(idle), format_bytes(span.peak));
    stages.push_back({{"compute_s", span.compute.value},
                      {"begins_s", span.first.value},
                      {"last_pass_s", span.last.value},
                      {"idle_s", idle.value},
                      {"peak_bytes", span.peak.value}});
  }
  text += fmt::format("\n{} of exchanging gradients after the last pass\n",
                      format_seconds(price.exchange));
  if (predicted.measured)
    text += fmt::format("measured {}: predicted {:+.1f} %\n", format_seconds(*predicted.measured),
                        100 * (price.step.value / predicted.measured->value - 1));
  context.result(text + "\n" + layers_note(profile.model), {{"step_s", price.step.value},
                                                            {"exchange_s", price.exchange.value},
                                                            {"peak_bytes", price.peak.value},
                                                            {"stages", stages}});
  return kDone;
}

}  // namespace motley::cli
