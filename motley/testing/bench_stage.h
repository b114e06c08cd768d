#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "motley/graph/graph_text.h"
#include "motley/synth/ranks/lower_rank.h"
#include "motley/synth/ranks/sharding_rules.h"

namespace motley::synth {

struct BenchGradient {
  std::string name;
  std::int64_t ready = 0;                ///< position after which it is available
  graph::Form form = graph::kWholeForm;  ///< of the parameter
  bool is_term = false;
  int bucket = -1;
  std::vector<std::int64_t> by_member = {};  ///< instead of `ready`, where members differ

  std::int64_t ready_on(std::size_t member) const {
    return by_member.empty() ? ready : by_member[member];
  }
};
struct BenchRegion {
  std::vector<std::size_t> ranks;
  std::vector<double> shares;
  std::vector<BenchGradient> gradients;
  double rate = 0;
};
struct Bench {
  std::map<std::string, std::string> parameters;  ///< types by name: "f32[8]"
  std::vector<BenchRegion> regions;
  std::int64_t bucket_bytes = 1 << 20;
  std::map<std::size_t, std::int64_t> busy_until = {};  ///< by rank
  std::vector<double> times = {};
  std::map<std::string, std::vector<double>> owners = {};  ///< of GradientExchange::Target
  std::vector<std::size_t> nodes = {};                     ///< by rank (GradientExchange::Target)
  LowerOptions options = {};
};

/// Makes a region's parameters and an operator per gradient; outputs a loss, then the gradients.
inline graph::Graph bench_graph(const Bench& bench, const BenchRegion& region) {
  std::string sources, operators, outputs;
  const std::size_t count = region.gradients.size();
  for (std::size_t i = 0; i < count; ++i) {
    const std::string& name = region.gradients[i].name;
    const std::string& type = bench.parameters.at(name);
    sources += fmt::format("param %{}: {} \"{}\"\n", i, type, name);
    operators += fmt::format("op %{}: {} = aten::neg(%{}) bwd \"\"\n", count + i, type, i);
    outputs += fmt::format("output gradient %{} of \"{}\"\n", count + i, name);
  }
  operators += fmt::format("op %{}: f32[] = aten::sum(%0, dtype(f32)) fwd \"\"\n", 2 * count);
  auto graph = graph::parse_graph(fmt::format("motley.graph/1\nname \"g\"\nsize batch 1 64\n"
                                              "{}{}output loss %{}\n{}",
                                              sources, operators, 2 * count, outputs),
                                  "g");
  EXPECT_TRUE(graph) << graph.error().message;
  return *std::move(graph);
}

/// A region lowered on `builders`, by rank. The bench must outlive it; it must not move.
class BenchStage {
 public:
  BenchStage(const Bench& bench, const BenchRegion& region, std::deque<ProgramBuilder>& builders)
      : graph(bench_graph(bench, region)) {
    sharding_.shares = region.shares;
    sharding_.devices.resize(region.ranks.size());
    sharding_.batch = 1;
    sharding_.sources.assign(graph.values.size(), graph::kWholeForm);
    for (std::size_t i = 0; i < region.gradients.size(); ++i) {
      sharding_.sources[i] = region.gradients[i].form;
      part_.shared.insert(ValueId(static_cast<std::int64_t>(i)));
    }
    for (const graph::Op& op : graph.ops) {
      rules_.push_back(graph::rule_alone(op));
      sharding_.ops.push_back(whole_strategy(rules_.back()));
    }
    step_.emplace(plan_step(graph, sharding_, rules_, bench.options, nullptr, &part_));
    for (std::size_t member = 0; member < region.ranks.size(); ++member) {
      places_.emplace_back(parts_, member);
      ranks.emplace_back(*step_, places_[member], builders[region.ranks[member]]);
      writers.emplace_back(ranks.back());
    }
  }
  BenchStage(const BenchStage&) = delete;

 private:
  Sharding sharding_;
  std::vector<graph::ShardingRule> rules_;
  PartOfStep part_;
  std::optional<ShardedStep> step_;
  Parts parts_{sharding_.shares};
  std::deque<Place> places_;

 public:
  const graph::Graph graph;
  std::deque<RankStep> ranks;      ///< by member
  std::deque<RankWriter> writers;  ///< by member
};

}  // namespace motley::synth
