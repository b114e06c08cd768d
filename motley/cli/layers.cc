#include "motley/cli/layers.h"

#include <fmt/format.h>

#include <algorithm>

#include "motley/base/file.h"
#include "motley/base/text.h"
#include "motley/cli/planning.h"
#include "motley/cost/layers/metis.h"
#include "motley/cost/layers/sailor.h"
#include "motley/cost/trust/experience.h"
#include "motley/report/report.h"
#include "motley/search/planners.h"
#include "motley/search/split/layer_evaluator.h"

namespace motley::cli {
namespace {

/// "KIND=FILE"
Result<std::pair<std::string, std::string>> parse_times(const std::string& text) {
  const std::size_t at = text.find('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size())
    return usage_error("cli.layers", fmt::format("--layer-times: found '{}', wanted KIND=FILE, for "
                                                 "example A100-40=profile.json",
                                                 text));
  return std::pair(text.substr(0, at), text.substr(at + 1));
}

Result<cost::LayerProfile> read_sailor(const LayerOptions& options) {
  cost::LayerProfile profile;
  profile.model = options.model;
  for (const std::string& each : options.times) {
    MOTLEY_ASSIGN(const auto named, parse_times(each));
    MOTLEY_ASSIGN(const std::string text, read_file(named.second));
    MOTLEY_RETURN_IF_ERROR(
        cost::add_sailor_times(text, named.second, cost::sailor_kind(named.first), profile));
  }
  if (options.sizes.empty())
    return usage_error("cli.layers", "--layer-times wants --layer-sizes FILE (llm_info.json)");
  MOTLEY_ASSIGN(const std::string text, read_file(options.sizes));
  MOTLEY_RETURN_IF_ERROR(cost::add_sailor_sizes(text, options.sizes, profile));
  return profile;
}

Result<cost::LayerProfile> read_metis(const LayerOptions& options) {
  std::vector<cost::MetisFile> files;
  for (const std::string& path : options.metis) {
    MOTLEY_ASSIGN(std::string text, read_file(path));
    files.push_back({path, std::move(text)});
  }
  return cost::parse_metis_profile(files);
}

Result<cost::LayerProfile> read_layers(const LayerOptions& options) {
  Result<cost::LayerProfile> profile =
      options.metis.empty() ? read_sailor(options) : read_metis(options);
  if (!profile) return profile;
  MOTLEY_RETURN_IF_ERROR(cost::verify_layer_profile(*profile, cost::built_in_peaks()));
  return profile;
}

plan::Problem make_problem(const PlanningOptions& options, const cluster::Cluster& cluster,
                           const search::LayerEvaluator& layers) {
  plan::Problem problem;
  problem.cluster = &cluster;
  problem.global_batch = options.global_batch;
  problem.max_samples = layers.max_samples();
  problem.devices = layers.devices();
  problem.seed = options.seed;
  return problem;
}

/// What a layer profile's predictions were off by (docs/benchmarks.md, "Accuracy").
std::string layers_note(const cost::LayerProfile& profile) {
  return fmt::format(
      "from the layer profile of {}: no overlap, no workspace; step times of pipelines were off by "
      "4.5 % on average and 17 % at worst (make bench-accuracy)\n",
      profile.model);
}

}  // namespace

Result<int> plan_layers(const PlanningOptions& options, const Context& context) {
  if (options.cluster.empty())
    return usage_error("cli.cluster", "which devices? give -C CLUSTER.toml");
  if (options.global_batch < 1)
    return usage_error("cli.global-batch", "how many samples a step? give --global-batch N");
  MOTLEY_ASSIGN(const cost::LayerProfile profile, read_layers(options.layers));
  MOTLEY_ASSIGN(const cluster::Cluster cluster, cluster::read_cluster(options.cluster));
  MOTLEY_ASSIGN(const auto layers, search::LayerEvaluator::make(profile, cluster));
  MOTLEY_ASSIGN(const auto manual, parse_batch_split(options.batch_split));
  MOTLEY_ASSIGN(
      const auto planner,
      search::make_planner(manual.empty() ? options.planner : "manual", {&layers.evaluator()}));
  plan::Problem problem = make_problem(options, cluster, layers);
  problem.manual = manual;
  Planned planned;
  const double start = steady_seconds();
  MOTLEY_ASSIGN(planned.outcome, planner->plan(problem));
  planned.elapsed_s = steady_seconds() - start;
  planned.inputs.cluster = cluster;
  Json object = outcome_to_json(planned);
  object["interval_basis"] = layers_note(profile);
  if (!planned.outcome.plan) return report_infeasible(planned.outcome, object, context);
  context.result(report::print_outcome(planned.outcome, cluster) + "\n" + layers_note(profile),
                 object);
  return kDone;
}

Result<int> simulate_layers(const SimulateOptions& options, const Context& context) {
  MOTLEY_ASSIGN(const cost::LayerProfile profile, read_layers(options.planning.layers));
  const LayerOptions& files = options.planning.layers;
  if (options.plan.empty() || files.network.empty())
    return usage_error("cli.layers",
                       "simulate with layers wants --plan PIPELINE.json and --layer-network FILE");
  MOTLEY_ASSIGN(const std::string plan_text, read_file(options.plan));
  MOTLEY_ASSIGN(const cost::SailorPlan pipeline, cost::parse_sailor_plan(plan_text, options.plan));
  MOTLEY_ASSIGN(const std::string network_text, read_file(files.network));
  MOTLEY_ASSIGN(cost::StageNetwork network,
                cost::parse_sailor_network(network_text, files.network));
  for (const cost::PipelineStage& stage : pipeline.plan.stages)
    for (const cost::StageGroup& group : stage.replicas)
      network.devices_per_host[group.kind] = files.devices_per_host;
  MOTLEY_ASSIGN(const cost::PipelineStep step,
                cost::estimate_pipeline_step(pipeline.plan, profile, network));
  std::string text = fmt::format("step {}, {} stages\n\n  {:<6} {:>10} {:>10} {:>10} {:>10}  {}\n",
                                 format_seconds(step.step), step.times.size(), "stage", "compute",
                                 "exchange", "waiting", "bubble", "peak memory");
  Json stages = Json::array();
  for (std::size_t s = 0; s < step.times.size(); ++s) {
    const cost::StageTimes& times = step.times[s];
    text +=
        fmt::format("  {:<6} {:>10} {:>10} {:>10} {:>10}  {}\n", s, format_seconds(times.compute),
                    format_seconds(times.communication), format_seconds(times.waiting),
                    format_seconds(times.bubble), format_bytes(step.memory[s].total()));
    stages.push_back({{"compute_s", times.compute.value},
                      {"exposed_comm_s", times.communication.value},
                      {"waiting_s", times.waiting.value},
                      {"bubble_s", times.bubble.value},
                      {"peak_bytes", step.memory[s].total().value}});
  }
  if (pipeline.step)
    text += fmt::format("\nmeasured {}: predicted {:+.1f} %\n", format_seconds(*pipeline.step),
                        100 * (step.step.value / pipeline.step->value - 1));
  context.result(
      text + "\n" + layers_note(profile),
      {{"step_s", step.step.value}, {"peak_bytes", step.peak.value}, {"stages", stages}});
  return kDone;
}

}  // namespace motley::cli
