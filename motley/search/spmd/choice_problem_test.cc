#include "motley/search/spmd/choice_problem.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <memory>
#include <set>

#include "motley/base/random.h"
#include "motley/cluster/kinds.h"
#include "motley/cost/operators/kind_times.h"
#include "motley/graph/graph_text.h"
#include "motley/search/spmd/form_changes.h"
#include "motley/testing/rounds.h"

namespace motley::search {
namespace {

using graph::Form;

/// Builds up to 12 operators: products, additions, activations, a loss, gradients over the batch.
std::string random_graph(SplitMix64& random) {
  const std::int64_t width = std::int64_t{256} << random.below(4);
  std::string head = "motley.graph/1\nname \"toy\"\nsize batch 1 65536\n", ops, outputs;
  int next = 0;
  const auto wide = fmt::format("f32[batch, {}]", width),
             square = fmt::format("f32[{0}, {0}]", width);
  std::vector<int> values{next++}, weights;
  head += fmt::format("input %0: {} \"x\"\n", wide);
  const std::uint64_t parameters = 1 + random.below(2), operators = 2 + random.below(6);
  for (std::uint64_t p = 0; p < parameters; ++p) {
    weights.push_back(next);
    head += fmt::format("param %{}: {} \"w{}\"\n", next++, square, p);
  }
  const auto any = [&](const std::vector<int>& from) { return from[random.below(from.size())]; };
  const auto add_op = [&](const std::string& type, const std::string& call) {
    ops += fmt::format("op %{}: {} = {} fwd \"\"\n", next, type, call);
    return next++;
  };
  for (std::uint64_t i = 0; i < operators; ++i) {
    const int v = any(values);
    switch (random.below(4)) {
      case 0:
        values.push_back(add_op(wide, fmt::format("aten::relu(%{})", v)));
        break;
      case 1:
        values.push_back(
            add_op(wide, fmt::format("aten::add.Tensor(%{}, %{}, 1)", v, any(values))));
        break;
      default:
        values.push_back(add_op(wide, fmt::format("aten::mm(%{}, %{})", v, any(weights))));
    }
  }
  const int loss = add_op("f32[]", fmt::format("aten::sum(%{}, none)", values.back()));
  outputs += fmt::format("output loss %{}\n", loss);
  for (std::size_t p = 0; p < weights.size(); ++p) {
    const int turned =
        add_op(fmt::format("f32[{}, batch]", width), fmt::format("aten::t(%{})", any(values)));
    const int gradient = add_op(square, fmt::format("aten::mm(%{}, %{})", turned, any(values)));
    outputs += fmt::format("output gradient %{} of \"w{}\"\n", gradient, p);
  }
  return head + ops + outputs;
}

/// Three devices of different kinds, with links of a random rate.
struct ChoiceSetting {
  graph::Graph graph;
  cluster::Cluster cluster;
  Costs costs;
  std::vector<DeviceId> devices;
  std::vector<double> shares;
  std::int64_t batch = 0;

  explicit ChoiceSetting(std::uint64_t seed) {
    SplitMix64 random(seed);
    const std::string text = random_graph(random);
    auto parsed = graph::parse_graph(text, "toy");
    EXPECT_TRUE(parsed) << parsed.error().message << text;
    graph = *parsed;
    cluster = *cluster::parse_cluster(
        fmt::format("schema = \"motley.cluster/1\"\nname = \"toy\"\n"
                    "[[node]]\nname = \"a\"\nhost = \"h1\"\n[[node.device]]\nkind = \"a100-40g\"\n"
                    "[[node]]\nname = \"b\"\nhost = \"h2\"\n[[node.device]]\nkind = \"v100-16g\"\n"
                    "[[node]]\nname = \"c\"\nhost = \"h3\"\n[[node.device]]\nkind = \"t4\"\n"
                    "[[link]]\nall = true\nbandwidth = \"{}Gbps\"\nlatency = \"5us\"\n",
                    1 << random.below(10)),
        "toy");
    const auto shared = std::make_shared<const graph::Graph>(graph);
    for (const cluster::Device& device : cluster.devices) {
      devices.emplace_back(static_cast<std::int64_t>(devices.size()));
      shares.push_back(0.2 + random.uniform());
      costs.by_work[device.name] = {
          std::make_shared<cost::KindTimes>(shared, *cluster::find_kind(device.kind)), 1.0};
      costs.devices[device.name] = {};
    }
    batch = std::int64_t{64} << random.below(8);
  }
};

/// Counts the cost of a choice directly: every form of a value is made once.
class AllChoices {
 public:
  AllChoices(const graph::Graph& graph, const SpmdSpace& space, SpmdPrices& prices)
      : graph_(graph), space_(space), prices_(prices) {
    homes_.resize(graph.values.size());
    made_.resize(graph.values.size());
  }

  /// Returns the least cost below `known`, or `known`.
  double best_below(double known) {
    best_ = known;
    choose_source(0, 0);
    return best_;
  }

  double cost_of(const synth::Sharding& sharding) {
    for (std::size_t v = 0; v < homes_.size(); ++v) homes_[v] = sharding.sources[v];
    double cost = 0;
    for (std::size_t v = 0; v < homes_.size(); ++v)
      if (graph_.values[v].role == graph::ValueRole::kParameter)
        cost += source_cost(v, sharding.sources[v]);
    for (std::size_t i = 0; i < graph_.ops.size(); ++i)
      if (space_.is_needed[i]) cost += run(i, sharding.ops[i]);
    return cost + outputs();
  }

 private:
  double source_cost(std::size_t v, const Form& form) {
    const auto times = prices_.update(ValueId(static_cast<std::int64_t>(v)), form, 0);
    return *std::max_element(times.begin(), times.end());
  }

  double convert(ValueId value, const Form& to) {
    const Form& home = homes_[value.index()];
    if (home == to || !made_[value.index()].insert(to).second) return 0;
    const ConversionTime& time = prices_.conversion(value, home, to);
    return time.exchange + time.copies();
  }

  double run(std::size_t op, const graph::Strategy& way) {
    const OpId id(static_cast<std::int64_t>(op));
    double cost = prices_.inner_exchanges(id, way);
    const auto& compute = prices_.compute(id, way);
    cost += *std::max_element(compute.begin(), compute.end());
    for (std::size_t o = 0; o < way.operands.size(); ++o)
      cost += convert(space_.rules[op].operands[o], way.operands[o]);
    for (std::size_t r = 0; r < way.results.size(); ++r)
      homes_[graph_.ops[op].outputs[r].index()] = way.results[r];
    return cost;
  }

  double outputs() {
    double cost = 0;
    for (const graph::Output& output : graph_.outputs)
      cost += convert(output.value, output.kind == graph::OutputKind::kGradient
                                        ? homes_[output.of.index()]
                                        : graph::kWholeForm);
    return cost;
  }

  void choose_source(std::size_t v, double cost) {
    if (v == homes_.size()) return choose_op(0, cost);
    if (space_.kept[v].empty()) return choose_source(v + 1, cost);
    for (const Form& form : space_.kept[v]) {
      homes_[v] = form;
      const bool is_parameter = graph_.values[v].role == graph::ValueRole::kParameter;
      choose_source(v + 1, cost + (is_parameter ? source_cost(v, form) : 0));
    }
  }

  void choose_op(std::size_t op, double cost) {
    if (cost >= best_) return;
    const auto before = made_;
    if (op == graph_.ops.size()) {
      best_ = std::min(best_, cost + outputs());
      made_ = before;
      return;
    }
    if (!space_.is_needed[op]) return choose_op(op + 1, cost);
    for (const graph::Strategy& way : space_.ways[op]) {
      choose_op(op + 1, cost + run(op, way));
      made_ = before;
    }
  }

  const graph::Graph& graph_;
  const SpmdSpace& space_;
  SpmdPrices& prices_;
  std::vector<Form> homes_;
  std::vector<std::set<Form>> made_;
  double best_ = 0;
};

TEST(ChoiceProblem, EqualsExhaustiveSearchOnSmallGraphs) {
  std::uint64_t split = 0;
  const std::uint64_t rounds = testing::rounds(100, 500);
  for (std::uint64_t seed = 0; seed < rounds; ++seed) {
    const ChoiceSetting setting(seed);
    const SpmdSpace space = find_space(setting.graph, setting.batch, setting.shares);
    const auto kinds = DeviceKinds::find(setting.cluster, setting.costs, setting.devices);
    ASSERT_TRUE(kinds) << kinds.error().message;
    const auto owned = setting.costs.model(setting.cluster);
    const cost::CostModel& model = *owned;
    std::vector<std::string> names;
    for (const DeviceId id : setting.devices) names.push_back(setting.cluster.device(id).name);
    ExchangeTimes exchanges(model, names);
    SpmdPrices prices(setting.graph, space, exchanges, *kinds, setting.devices, setting.shares);
    const ChoiceProblem problem(setting.graph, space);
    const TableSolution solution = problem.solve(problem.costs(prices, {}));
    EXPECT_EQ(solution.relaxed, 0u);
    synth::Sharding sharding;
    problem.apply(solution.choice, sharding);
    const double found = AllChoices(setting.graph, space, prices).cost_of(sharding);
    const double almost = found * (1 - 1e-9);
    EXPECT_EQ(AllChoices(setting.graph, space, prices).best_below(almost), almost) << seed;
    EXPECT_NEAR(solution.cost, found, 1e-9 * found) << "seed " << seed;
    if (std::any_of(sharding.ops.begin(), sharding.ops.end(),
                    [](const auto& way) { return way.factor >= 0; }))
      ++split;
  }
  EXPECT_GT(split, rounds / 10);  // whole operators are not always best here
}

struct PricedSetting {
  const ChoiceSetting setting;
  const SpmdSpace space{find_space(setting.graph, setting.batch, setting.shares)};
  const DeviceKinds kinds{
      DeviceKinds::find(setting.cluster, setting.costs, setting.devices).value()};
  const std::unique_ptr<const cost::CostModel> model = setting.costs.model(setting.cluster);
  ExchangeTimes exchanges{*model, {"a:0", "b:0", "c:0"}};
  SpmdPrices prices{setting.graph, space, exchanges, kinds, setting.devices, setting.shares};
  const ChoiceProblem problem{setting.graph, space};

  explicit PricedSetting(std::uint64_t seed) : setting(seed) {}
  synth::Sharding best(const TableCosts& costs) const {
    synth::Sharding sharding;
    problem.apply(problem.solve(costs).choice, sharding);
    return sharding;
  }
};

TEST(ChoiceProblem, RestrictsAnOperatorsWays) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    PricedSetting drawn(seed);
    const TableCosts all = drawn.problem.costs(drawn.prices, {});
    const double least = drawn.problem.solve(all).cost;
    const synth::Sharding best = drawn.best(all);
    for (std::size_t op = 0; op < best.ops.size(); ++op) {
      if (!drawn.space.is_needed[op]) continue;
      const OpId id(static_cast<std::int64_t>(op));
      TableCosts fewer = all;
      drawn.problem.restrict(fewer, id,
                             [&](const graph::Strategy& way) { return way != best.ops[op]; });
      if (drawn.space.ways[op].size() > 1) {
        EXPECT_NE(drawn.best(fewer).ops[op], best.ops[op]) << seed;
      }
      EXPECT_GE(drawn.problem.solve(fewer).cost, least * (1 - 1e-12)) << seed;
      TableCosts same = all;
      drawn.problem.restrict(same, id,
                             [&](const graph::Strategy& way) { return way == best.ops[op]; });
      EXPECT_NEAR(drawn.problem.solve(same).cost, least, 1e-12 * least) << seed;
    }
  }
}

// At a second per byte of memory any exchange pays: everything possible is sharded.
TEST(ChoiceProblem, DearMemoryKeepsParametersInParts) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    PricedSetting drawn(seed);
    SpmdObjective objective;
    objective.seconds_per_byte = 1;
    const synth::Sharding best = drawn.best(drawn.problem.costs(drawn.prices, objective));
    for (std::size_t v = 0; v < drawn.space.kept.size(); ++v)
      if (drawn.space.kept[v].size() > 1) {
        EXPECT_EQ(best.sources[v].kind, graph::FormKind::kSharded) << seed << ", value " << v;
      }
  }
}

// Either gradient exchanges are expensive, or all others; the expensive kind never grows.
TEST(ChoiceProblem, GradientsAreWeighedForThemselves) {
  const auto exchanged = [](PricedSetting& drawn, const SpmdObjective& objective) {
    const synth::Sharding best = drawn.best(drawn.problem.costs(drawn.prices, objective));
    double gradients = 0, others = 0;
    for (const FormChange& each : find_changes(drawn.setting.graph, drawn.space, best))
      (each.reader.op.is_none() ? gradients : others) +=
          drawn.prices.conversion(each.value, each.from, each.to).exchange;
    return std::pair(gradients, others);
  };
  int differ = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    PricedSetting drawn(seed);
    SpmdObjective dear_gradients, dear_others;
    dear_gradients.gradient_exchange = dear_others.exchange = 1e6;
    const auto first = exchanged(drawn, dear_gradients), second = exchanged(drawn, dear_others);
    EXPECT_LE(first.first, second.first * (1 + 1e-9)) << seed;
    EXPECT_GE(first.second, second.second * (1 - 1e-9)) << seed;
    if (first != second) ++differ;
  }
  EXPECT_GT(differ, 3);
}

}  // namespace
}  // namespace motley::search
