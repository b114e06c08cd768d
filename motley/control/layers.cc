#include "motley/control/layers.h"

#include <fmt/format.h>

#include <utility>

#include "motley/base/file.h"
#include "motley/cost/layers/metis.h"
#include "motley/cost/layers/sailor.h"
#include "motley/search/planners.h"
#include "motley/search/split/layer_evaluator.h"
#include "motley/search/stages/pipeline_stages.h"
#include "motley/search/stages/stage_evaluator.h"

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

Result<cost::StageNetwork> read_network(const LayerFiles& files) {
  MOTLEY_ASSIGN(const std::string text, read_file(files.network));
  MOTLEY_ASSIGN(cost::StageNetwork network, cost::parse_sailor_network(text, files.network));
  if (files.pairs.empty()) return network;
  if (files.zone.empty())
    return usage_error("cli.layers", "--layer-pairs wants --layer-zone: whose fits count?");
  MOTLEY_ASSIGN(const std::string pairs, read_file(files.pairs));
  MOTLEY_RETURN_IF_ERROR(cost::add_sailor_pairs(pairs, files.pairs, files.zone, network));
  return network;
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

Result<StageAnswer> plan_stages(const LayerFiles& files, const cluster::Cluster& cluster,
                                std::int64_t global_batch, const Clock& clock,
                                std::optional<search::StageSpace> space) {
  MOTLEY_ASSIGN(const cost::LayerProfile profile, read_layers(files));
  MOTLEY_ASSIGN(const search::ClusterPools pools, search::find_pools(cluster));
  std::shared_ptr<const search::HopCosts> hops;
  if (files.network.empty()) {
    hops = search::cluster_hops(cluster, pools);
  } else {
    MOTLEY_ASSIGN(const cost::StageNetwork network, read_network(files));
    hops = search::fitted_hops(network, pools.pools);
  }
  const bool may_recompute = files.may_recompute || space == search::StageSpace::kHarp;
  MOTLEY_ASSIGN(auto costs, search::LayerStageCosts::make(profile, pools.pools, std::move(hops),
                                                          {.may_recompute = may_recompute}));
  StageAnswer answer;
  answer.costs = std::make_unique<const search::LayerStageCosts>(std::move(costs));
  const Seconds start = clock.steady();
  const search::StageQuestion question{answer.costs.get(), global_batch};
  MOTLEY_ASSIGN(answer.outcome, space ? search::find_restricted(*space, question)
                                      : search::find_stage_plan(question));
  answer.elapsed_s = (clock.steady() - start).value;
  return answer;
}

Result<PipelinePrediction> simulate_pipeline(const cost::LayerProfile& profile,
                                             const std::string& plan_path,
                                             const LayerFiles& files) {
  MOTLEY_ASSIGN(const std::string plan_text, read_file(plan_path));
  MOTLEY_ASSIGN(const cost::SailorPlan pipeline, cost::parse_sailor_plan(plan_text, plan_path));
  MOTLEY_ASSIGN(const cost::StageNetwork network, read_network(files));
  const auto pools = search::pools_of(pipeline.plan, files.devices_per_host);
  MOTLEY_ASSIGN(const auto costs,
                search::LayerStageCosts::make(profile, pools, search::fitted_hops(network, pools),
                                              search::blocking_runtime()));
  PipelinePrediction prediction{.measured = pipeline.step};
  MOTLEY_ASSIGN(prediction.plan, search::to_stage_plan(pipeline.plan, costs));
  const search::StageSums sums(costs);
  MOTLEY_ASSIGN(prediction.price, search::StageEvaluator(sums).price(prediction.plan));
  return prediction;
}

}  // namespace motley::control
