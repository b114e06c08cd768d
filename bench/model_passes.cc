// What each pass of planning stages of a model buys (search/model_stages): exported models on drawn
// clusters, planned with all passes or without one. Usage: bench_model_passes OUT.tsv CLUSTERS PASS
// MODEL...; CLUSTERS a model; PASS is left out ("-": none is). Writes a line an instance: name,
// step (0: none fits), bound, considered, hash of all that the outcome says, CPU seconds.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "motley/base/file.h"
#include "motley/base/random.h"
#include "motley/cost/measured/profile_store.h"
#include "motley/graph/model_file.h"
#include "motley/search/model_stages/stage_planner.h"
#include "motley/search/price/costs.h"
#include "motley/search/split/step_evaluator.h"
#include "motley/search/split/water_filling.h"

namespace motley {
namespace {

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Two to eight devices on hosts of a kind or two each. Most have less memory than the model's
/// parameters, gradients and states, which are `held`.
std::string draw_cluster(SplitMix64& random, Bytes held) {
  constexpr const char* kKinds[] = {"a100-40g", "v100-16g", "t4", "rtx3090", "rtx4090", "p100"};
  constexpr double kMemories[] = {0.15, 0.25, 0.4, 0.7, 1.2};  // of what is held
  constexpr std::int64_t kLeast = 700 << 20;  // what PyTorch itself holds, and a little
  std::string text = "schema = \"motley.cluster/1\"\nname = \"drawn\"\n";
  std::size_t left = 2 + random.below(7);
  for (int node = 0; left > 0; ++node) {
    text += fmt::format("[[node]]\nname = \"n{0}\"\nhost = \"h{0}\"\n", node);
    for (std::size_t kinds = 1 + random.below(4) / 3; kinds > 0 && left > 0; --kinds) {
      const std::size_t count = std::min<std::size_t>(left, 1 + random.below(4));
      left -= count;
      text += fmt::format("[[node.device]]\nkind = \"{}\"\ncount = {}\n",
                          kKinds[random.below(std::size(kKinds))], count);
      const double part = kMemories[random.below(std::size(kMemories))];
      if (random.below(3) > 0)
        text +=
            fmt::format("memory = {}\n",
                        kLeast + static_cast<std::int64_t>(part * static_cast<double>(held.value)));
    }
  }
  return text + fmt::format("[[link]]\nall = true\nbandwidth = \"{}Mbps\"\nlatency = \"{}us\"\n",
                            500 << random.below(8), 5 << random.below(5));
}

Bytes held_bytes(const graph::Graph& graph, const plan::Recipe& recipe) {
  std::int64_t bytes = 0;
  for (const ValueId id : graph::values_with_role(graph, graph::ValueRole::kParameter))
    bytes += graph::value_bytes(graph.value(id), {});
  return Bytes(bytes * (2 + plan::count_states(recipe)));
}

/// All that the planner says of its answer.
std::string outcome_text(const plan::PlanOutcome& outcome, const cluster::Cluster& cluster) {
  std::string text = outcome.plan ? plan::print_plan(*outcome.plan, cluster) : "none\n";
  for (const std::string& why : outcome.why) text += why + "\n";
  for (const auto& replica : outcome.stage_names)
    for (const std::string& stage : replica) text += stage + "\n";
  for (const auto& [label, step] : outcome.runner_ups)
    text += fmt::format("{} {:.17g}\n", label, step.value);
  for (const auto& each : outcome.alternatives)
    text += fmt::format("{:.17g} {}\n", each.step.value, plan::print_plan(each.plan, cluster));
  return text;
}

struct Instance {
  const graph::Model* model = nullptr;
  std::string name;
  std::uint64_t seed = 0;
};

Result<std::string> run(const Instance& instance, const std::string& without) {
  SplitMix64 random(hash_bytes(instance.name) + instance.seed);
  const std::int64_t batch = 8 << random.below(5);
  search::CostOptions options;
  options.torch = "2.15.0";
  options.global_batch = batch;
  options.may_model = true;
  if (random.below(3) > 0) options.lowering.recipe.optimizer.kind = plan::OptimizerKind::kAdamW;
  const Bytes held = held_bytes(instance.model->graph, options.lowering.recipe);
  MOTLEY_ASSIGN(const auto cluster, cluster::parse_cluster(draw_cluster(random, held), "drawn"));
  MOTLEY_ASSIGN(const auto store, cost::ProfileStore::open(":memory:"));
  for (std::size_t i = 0; i < cluster.devices.size(); ++i)
    options.devices.emplace_back(static_cast<std::int64_t>(i));
  MOTLEY_ASSIGN(const auto costs, search::load_costs(*instance.model, cluster, store, options));
  MOTLEY_ASSIGN(const auto evaluator, search::StepEvaluator::make(instance.model->graph, cluster,
                                                                  options.lowering, costs));
  plan::Problem problem;
  problem.cluster = &cluster;
  problem.model_hash = instance.model->hash;
  problem.global_batch = batch;
  problem.devices = options.devices;
  problem.recipe = options.lowering.recipe;
  const double start = cpu_seconds();
  const search::PlannerInputs inputs = evaluator->inputs();
  MOTLEY_ASSIGN(plan::PlanOutcome outcome, search::WaterFilling(inputs).plan(problem));
  search::StageFinder finder;
  finder.without = without;
  MOTLEY_RETURN_IF_ERROR(search::consider_stages(inputs, problem, outcome, finder));
  return fmt::format("{}/{}\t{:.17g}\t{:.17g}\t{}\t{}\t{:.3f}\n", instance.name, instance.seed,
                     outcome.plan ? outcome.predicted_step.value : 0, outcome.lower_bound.value,
                     outcome.considered, hash_hex(outcome_text(outcome, cluster)),
                     cpu_seconds() - start);
}

int main_of(const std::string& out, std::uint64_t clusters, const std::string& without,
            const std::vector<std::string>& paths) {
  std::string rows;
  for (const std::string& path : paths) {
    const auto model = graph::read_model(path);
    if (!model) {
      fmt::print(stderr, "{}\n", model.error().message);
      return 1;
    }
    const std::string name = std::filesystem::path(path).stem();
    for (std::uint64_t seed = 1; seed <= clusters; ++seed) {
      const auto row = run({&*model, name, seed}, without);
      if (!row) fmt::print(stderr, "{}/{}: {}\n", name, seed, row.error().message);
      if (!row) continue;
      fmt::print("{}", *row);
      std::fflush(stdout);
      rows += *row;
    }
  }
  return write_file_atomic(out, rows) ? 0 : 1;
}

}  // namespace
}  // namespace motley

int main(int argc, char** argv) {
  if (argc < 5) {
    fmt::print(stderr, "usage: bench_model_passes OUT.tsv CLUSTERS PASS MODEL...\n");
    return 2;
  }
  return motley::main_of(argv[1], std::strtoull(argv[2], nullptr, 10), argv[3],
                         {argv + 4, argv + argc});
}
