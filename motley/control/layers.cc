#include "motley/control/layers.h"

#include <fmt/format.h>

#include <utility>

#include "motley/base/file.h"
#include "motley/cost/layers/metis.h"
#include "motley/cost/layers/sailor.h"
#include "motley/search/planners.h"
#include "motley/search/split/layer_evaluator.h"

namespace motley::control {
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

Result<cost::LayerProfile> read_sailor(const LayerFiles& files) {
  cost::LayerProfile profile;
  profile.model = files.model;
  for (const std::string& each : files.times) {
    MOTLEY_ASSIGN(const auto named, parse_times(each));
    MOTLEY_ASSIGN(const std::string text, read_file(named.second));
    MOTLEY_RETURN_IF_ERROR(
        cost::add_sailor_times(text, named.second, cost::sailor_kind(named.first), profile));
  }
  if (files.sizes.empty())
    return usage_error("cli.layers", "--layer-times wants --layer-sizes FILE (llm_info.json)");
  MOTLEY_ASSIGN(const std::string text, read_file(files.sizes));
  MOTLEY_RETURN_IF_ERROR(cost::add_sailor_sizes(text, files.sizes, profile));
  return profile;
}

Result<cost::LayerProfile> read_metis(const LayerFiles& files) {
  std::vector<cost::MetisFile> texts;
  for (const std::string& path : files.metis) {
    MOTLEY_ASSIGN(std::string text, read_file(path));
    texts.push_back({path, std::move(text)});
  }
  return cost::parse_metis_profile(texts);
}

}  // namespace

Result<cost::LayerProfile> read_layers(const LayerFiles& files) {
  Result<cost::LayerProfile> profile = files.metis.empty() ? read_sailor(files) : read_metis(files);
  if (!profile) return profile;
  MOTLEY_RETURN_IF_ERROR(cost::verify_layer_profile(*profile, cost::built_in_peaks()));
  return profile;
}

Result<LayerAnswer> plan_layers(const cost::LayerProfile& profile, const cluster::Cluster& cluster,
                                std::int64_t global_batch, const PlanChoices& choices,
                                const Clock& clock) {
  MOTLEY_ASSIGN(const auto layers, search::LayerEvaluator::make(profile, cluster));
  MOTLEY_ASSIGN(const auto planner,
                search::make_planner(choices.manual.empty() ? choices.planner : "manual",
                                     {&layers.evaluator()}));
  plan::Problem problem;
  problem.cluster = &cluster;
  problem.global_batch = global_batch;
  problem.max_samples = layers.max_samples();
  problem.devices = layers.devices();
  problem.seed = choices.seed;
  problem.manual = choices.manual;
  LayerAnswer answer;
  const Seconds start = clock.steady();
  MOTLEY_ASSIGN(answer.outcome, planner->plan(problem));
  answer.elapsed_s = (clock.steady() - start).value;
  return answer;
}

Result<PipelinePrediction> simulate_pipeline(const cost::LayerProfile& profile,
                                             const std::string& plan_path,
                                             const LayerFiles& files) {
  MOTLEY_ASSIGN(const std::string plan_text, read_file(plan_path));
  MOTLEY_ASSIGN(const cost::SailorPlan pipeline, cost::parse_sailor_plan(plan_text, plan_path));
  MOTLEY_ASSIGN(const std::string network_text, read_file(files.network));
  MOTLEY_ASSIGN(cost::StageNetwork network,
                cost::parse_sailor_network(network_text, files.network));
  for (const cost::PipelineStage& stage : pipeline.plan.stages)
    for (const cost::StageGroup& group : stage.replicas)
      network.devices_per_host[group.kind] = files.devices_per_host;
  PipelinePrediction prediction{.measured = pipeline.step};
  MOTLEY_ASSIGN(prediction.step, cost::estimate_pipeline_step(pipeline.plan, profile, network));
  return prediction;
}

}  // namespace motley::control
