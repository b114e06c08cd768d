// Plans operator-level sharding beside data parallelism, on clusters of built-in device kinds.
// Usage: bench_spmd MODELS OUT.json [PART OF A NAME]; MODELS is a folder of exported models
// (bench/spmd.py exports them). Prints one table; a row per instance.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/cost/measured/profile_store.h"
#include "motley/graph/model_file.h"
#include "motley/search/planners.h"
#include "motley/search/price/costs.h"
#include "motley/search/split/step_evaluator.h"
#include "motley/search/spmd/hap_search.h"
#include "motley/search/spmd/spmd_planner.h"

namespace motley {
namespace {

struct Network {
  const char* name;
  const char* bandwidth;
};
constexpr Network kNetworks[] = {{"100 Gbps", "100Gbps"}, {"10 Gbps", "10Gbps"}};

struct Nodes {
  const char* name;
  std::vector<std::pair<const char*, int>> devices;  // a node each: kind and number
};
const std::vector<Nodes> kNodes = {
    {"2 A100, 2 V100", {{"a100-40g", 2}, {"v100-16g", 2}}},
    {"A100, 2 V100, 2 T4", {{"a100-40g", 1}, {"v100-16g", 2}, {"t4", 2}}}};

/// Clusters for planning time: whole nodes of eight.
const std::vector<Nodes> kLargeNodes = {{"4 A100, 4 V100", {{"a100-40g", 4}, {"v100-16g", 4}}},
                                        {"8 A100, 8 V100", {{"a100-40g", 8}, {"v100-16g", 8}}},
                                        {"32 A100, 32 V100",
                                         {{"a100-40g", 8},
                                          {"a100-40g", 8},
                                          {"a100-40g", 8},
                                          {"a100-40g", 8},
                                          {"v100-16g", 8},
                                          {"v100-16g", 8},
                                          {"v100-16g", 8},
                                          {"v100-16g", 8}}}};

/// Returns samples per step, as is usual on this many devices.
std::int64_t global_batch_of(const std::string& model) {
  if (model == "mlp") return 64;
  if (model == "recommender") return 2048;
  if (model == "llama") return 8;
  return 32;
}

std::string cluster_text(const Nodes& nodes, const Network& network) {
  std::string text = "schema = \"motley.cluster/1\"\nname = \"bench\"\n";
  for (std::size_t n = 0; n < nodes.devices.size(); ++n)
    text += fmt::format(
        "[[node]]\nname = \"n{}\"\nhost = \"10.0.0.{}\"\n[[node.device]]\nkind = \"{}\"\ncount = "
        "{}\n",
        n, n + 1, nodes.devices[n].first, nodes.devices[n].second);
  return text + fmt::format("[[link]]\nall = true\nbandwidth = \"{}\"\nlatency = \"20us\"\n",
                            network.bandwidth);
}

/// Tells whether HAP's planning times are known.
bool has_large(const std::string& model) {
  return model == "bert" || model == "bert24" || model == "moe";
}
constexpr std::int64_t kSamplesEach = 8;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Baseline {
  std::string name;
  double step = INFINITY;
  plan::PlanOutcome outcome;
};

/// Finds splits of the batch: equal, proportional, the best.
Result<std::vector<Baseline>> find_baselines(const plan::Problem& problem,
                                             const search::StepEvaluator& evaluator) {
  std::vector<Baseline> baselines;
  for (const char* name : {"equal", "proportional", "split"}) {
    MOTLEY_ASSIGN(const auto planner, search::make_planner(name, evaluator.inputs()));
    MOTLEY_ASSIGN(const auto outcome, planner->plan(problem));
    baselines.push_back(
        {name, outcome.plan ? outcome.predicted_step.value : double{INFINITY}, outcome});
  }
  return baselines;
}

Result<Json> run(const graph::Model& model, const Nodes& nodes, const Network& network,
                 std::int64_t global_batch) {
  MOTLEY_ASSIGN(const auto cluster, cluster::parse_cluster(cluster_text(nodes, network), "bench"));
  MOTLEY_ASSIGN(const auto store, cost::ProfileStore::open(":memory:"));
  search::CostOptions options;
  options.torch = "2.15.0";
  options.global_batch = global_batch;
  for (std::size_t i = 0; i < cluster.devices.size(); ++i)
    options.devices.emplace_back(static_cast<std::int64_t>(i));
  MOTLEY_ASSIGN(const auto costs, search::load_costs(model, cluster, store, options));
  MOTLEY_ASSIGN(const auto evaluator,
                search::StepEvaluator::make(model.graph, cluster, options.lowering, costs));
  plan::Problem problem;
  problem.cluster = &cluster;
  problem.model_hash = model.hash;
  problem.global_batch = options.global_batch;
  problem.devices = options.devices;
  problem.most_bucket_bytes = Bytes(16 << 20);  // default of `motley plan`
  MOTLEY_ASSIGN(const std::vector<Baseline> baselines, find_baselines(problem, *evaluator));
  const double start = cpu_seconds();
  MOTLEY_ASSIGN(const auto found,
                search::plan_sharding(search::SpmdMethod::kSpmd, evaluator->inputs(), problem,
                                      {&baselines[2].outcome, Deadline()}));
  const double seconds = cpu_seconds() - start;
  const plan::PlanOutcome& answer = found.outcome;
  // The result of planner `auto`: the better of the sharding and the best split of the batch.
  const double sharded = answer.plan ? answer.predicted_step.value : INFINITY;
  const search::SpmdQuestion question = search::spmd_question(evaluator->inputs(), problem);
  MOTLEY_ASSIGN(auto study, search::SpmdStudy::make(question));
  const double step = std::min(sharded, baselines[2].step);
  MOTLEY_ASSIGN(const auto hap, search::find_hap_plan(study));
  const double hap_step = hap.fits() ? hap.step.value : INFINITY;
  const double best = std::min({baselines[0].step, baselines[1].step, hap_step});
  std::string shares;
  if (answer.plan) {
    const plan::Replica& replica = answer.plan->replicas[0];
    for (const double share : replica.regions[0].shares)
      shares +=
          fmt::format("{}{:.2f}", shares.empty() ? "" : ":", share / replica.regions[0].shares[0]);
    if (replica.turns > 1) shares += fmt::format(", {} turns", replica.turns);
  }
  std::string times;
  for (const double time :
       {baselines[0].step, baselines[1].step, hap_step, baselines[2].step, sharded})
    times += fmt::format(" {:>9.2f}", time * 1e3);
  fmt::print("{:<12} {:<20} {:<9}{} {:>6.3f} {:>9.2f} {:>6.1f}% {:>7.2f}s {:>4} {}\n",
             model.graph.name, nodes.name, network.name, times, step / best,
             answer.lower_bound.value * 1e3, 100 * (step / answer.lower_bound.value - 1), seconds,
             answer.considered, shares);
  std::fflush(stdout);
  return Json{{"model", model.graph.name},
              {"cluster", fmt::format("{}, {}", nodes.name, network.name)},
              {"planner", step < baselines[2].step ? "spmd" : "split"},
              {"predicted_step_s", step},
              {"best_baseline_s", best},
              {"best_split_s", baselines[2].step},
              {"lower_bound_s", answer.lower_bound.value},
              {"plan_cpu_s", seconds},
              {"reference_s", nullptr}};
}

int main_of(const std::string& folder, const std::string& out, const std::string& part) {
  Json rows = Json::array(), large = Json::array();
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".motley" &&
        entry.path().filename().string().find(part) != std::string::npos)
      paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  fmt::print("{:<12} {:<20} {:<9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6} {:>9} {:>7} {:>8} {:>4}\n",
             "model", "devices", "links", "equal ms", "prop. ms", "hap", "best DP", "spmd ms",
             "ratio", "bound", "gap", "planned", "sims");
  for (const std::string& path : paths) {
    const auto model = graph::read_model(path);
    if (!model) {
      fmt::print(stderr, "{}\n", model.error().message);
      return 2;
    }
    for (const Nodes& nodes : kNodes)
      for (const Network& network : kNetworks) {
        const auto row = run(*model, nodes, network, global_batch_of(model->graph.name));
        if (!row) {
          fmt::print(stderr, "{}: {}\n", path, row.error().message);
          return 1;
        }
        rows.push_back(*row);
      }
    if (!has_large(model->graph.name)) continue;
    for (const Nodes& nodes : kLargeNodes) {
      std::int64_t devices = 0;
      for (const auto& [kind, count] : nodes.devices) devices += count;
      const auto row = run(*model, nodes, kNetworks[0], kSamplesEach * devices);
      if (!row) {
        fmt::print(stderr, "{}: {}\n", path, row.error().message);
        return 1;
      }
      large.push_back(*row);
    }
  }
  const auto written = write_file_atomic(out, Json{{"rows", rows}, {"large", large}}.dump(1));
  return written ? 0 : 1;
}

}  // namespace
}  // namespace motley

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: bench_spmd MODELS OUT.json [PART OF A NAME]\n");
    return 2;
  }
  return motley::main_of(argv[1], argv[2], argc > 3 ? argv[3] : "");
}
