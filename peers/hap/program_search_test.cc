#include "peers/hap/program_search.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "motley/base/random.h"
#include "peers/testing/literal_search.h"

namespace motley::peers {
namespace {

/// A chain of operators over one input.
struct Chain {
  ReferenceGraph graph;
  TensorId last;

  TensorId tensor(std::vector<std::int64_t> shape, TensorRole role, bool communicatable = false) {
    graph.tensors.push_back(
        {fmt::format("t{}", graph.tensors.size()), std::move(shape), role, communicatable});
    return TensorId(static_cast<std::int64_t>(graph.tensors.size()) - 1);
  }
  explicit Chain(std::vector<std::int64_t> shape)
      : last(tensor(std::move(shape), TensorRole::kInput)) {}
  const std::vector<std::int64_t>& shape() const { return graph.tensors[last.index()].shape; }

  void apply(std::string kind, std::vector<TensorId> inputs, std::vector<std::int64_t> shape,
             std::vector<std::int64_t> numbers = {}) {
    const bool communicatable = kind == "linear" || kind == "add" || kind == "scale";
    const TensorId output = tensor(std::move(shape), TensorRole::kActivation, communicatable);
    graph.operators.push_back({std::move(kind), std::move(inputs), {output}, std::move(numbers)});
    last = output;
  }
  void linear(std::int64_t width) {
    std::vector<std::int64_t> result = shape();
    const TensorId weight = tensor({width, result.back()}, TensorRole::kParameter);
    const TensorId bias = tensor({width}, TensorRole::kParameter);
    result.back() = width;
    apply("linear", {last, weight, bias}, std::move(result));
  }
  ReferenceGraph finish() {
    apply("sum", {last}, {});
    graph.loss = last;
    return graph;
  }
};

HapCluster equal_cluster(std::size_t devices) {
  HapCluster cluster;
  cluster.device_flops.assign(devices, 1e12);
  cluster.bytes_per_second = {1e9, 1e9, 1e9, 1e9, 1e9, 1e9};
  return cluster;
}

SpmdProgram program_of(const ReferenceGraph& graph, const HapCluster& cluster,
                       const RuleOptions& rules = {}, const HapCostOptions& cost = {}) {
  const auto program = find_program(graph, make_rules(graph, rules).value(),
                                    HapCost(cluster, cost, proportional_shares(cluster)));
  EXPECT_TRUE(program) << program.error().message;
  return *program;
}

ReferenceGraph make_mlp(std::int64_t samples, std::int64_t width, int layers) {
  Chain chain({samples, width});
  for (int layer = 0; layer < layers; ++layer) {
    chain.linear(width);
    if (layer + 1 < layers) chain.apply("relu", {chain.last}, chain.shape());
  }
  return chain.finish();
}

TEST(ProgramSearch, MlpIsDataParallel) {
  // 4 layers of 256 over 65,536 samples, 8 devices. Forward: 4 * 3 B D D + 3 * 3 B D + B D.
  const double samples = 65536, width = 256;
  const double flops = 3 * (12 * samples * width * width + 10 * samples * width);
  const double elements = 4 * (width * width + width);
  EXPECT_NEAR(program_of(make_mlp(65536, 256, 4), equal_cluster(8)).seconds,
              flops / 8e12 + elements / 1e9, 1e-15);
  // With latency: one all-reduce for each of 8 parameters.
  EXPECT_NEAR(
      program_of(make_mlp(65536, 256, 4), equal_cluster(8), {}, {.latency = Seconds(1e-6)}).seconds,
      8e-6 + flops / 8e12 + elements / 1e9, 1e-12);
}

TEST(ProgramSearch, SufficientFactorsReplaceASumOfGradients) {
  // 8 samples, 1,000 wide, 2 devices: gathering x and y's gradient moves 2 * 8,000 elements,
  // summing the weight's gradient 10^6; both 3,000 of bias and norm. Splitting the weight is slow.
  Chain chain({8, 1000});
  chain.linear(1000);
  chain.apply("layer_norm",
              {chain.last, chain.tensor({1000}, TensorRole::kParameter),
               chain.tensor({1000}, TensorRole::kParameter)},
              {8, 1000}, {1});
  const ReferenceGraph graph = chain.finish();
  HapCluster cluster = equal_cluster(2);
  cluster.bytes_per_second.all_to_all = cluster.bytes_per_second.reduce_scatter = 1e3;
  const RuleOptions factors{.sound = true, .sufficient_factors = true};
  const double forward = 3 * 8 * 1e6, rest = 10 * 8e3 + 8e3;
  // A third of the layer's flops runs on both devices.
  EXPECT_NEAR(program_of(graph, cluster, factors).seconds,
              (2 * forward + 3 * rest) / 2e12 + forward / 1e12 + (16e3 + 3e3) / 1e9, 1e-12);
  EXPECT_NEAR(program_of(graph, cluster, {.sound = true}).seconds,
              3 * (forward + rest) / 2e12 + 1.003e6 / 1e9, 1e-12);
}

TEST(ProgramSearch, LeavesOutWhatTheLossDoesNotNeed) {
  Chain chain({8, 4});
  chain.linear(4);
  const TensorId kept = chain.last;
  chain.apply("relu", {kept}, {8, 4});
  chain.last = kept;
  const SpmdProgram program = program_of(chain.finish(), equal_cluster(2));
  ASSERT_EQ(program.steps.size(), 2u);
  EXPECT_EQ(program.steps[1].op, 2u);
}

TEST(ProgramSearch, SaysWhichOperatorNoProgramPasses) {
  // The loss would be a scale of whole values; no rule makes partial sums of it.
  Chain chain({8});
  chain.apply("scale", {chain.last}, {8});
  chain.graph.loss = chain.last;
  const auto rules = make_rules(chain.graph).value();
  const HapCluster cluster = equal_cluster(2);
  const auto program = find_program(chain.graph, rules, HapCost(cluster, {}, {0.5, 0.5}));
  ASSERT_FALSE(program);
  EXPECT_EQ(program.error().kind, ErrorKind::kInfeasible);
  EXPECT_EQ(program.error().code, "search.hap-program");
  EXPECT_EQ(program.error().message, "operator 0 (scale): no program of the rules passes it");
}

/// Draws three to five operators with a residual sum and dimensions of 1 to 6.
ReferenceGraph random_graph(SplitMix64& random) {
  std::vector<std::int64_t> shape;
  for (std::size_t d = 0; d < 2 + random.below(2); ++d)
    shape.push_back(1 + static_cast<std::int64_t>(random.below(6)));
  Chain chain(shape);
  TensorId early = chain.last;
  const std::size_t operators = 2 + random.below(3);
  for (std::size_t i = 0; i < operators; ++i) {
    switch (random.below(5)) {
      case 0:
        chain.linear(chain.shape().back());
        break;
      case 1:
        chain.apply("relu", {chain.last}, chain.shape());
        break;
      case 2:
        chain.apply("scale", {chain.last}, chain.shape());
        break;
      case 3:
        chain.apply("log_softmax", {chain.last}, chain.shape(),
                    {static_cast<std::int64_t>(random.below(chain.shape().size()))});
        break;
      default:
        if (early != chain.last) chain.apply("add", {early, chain.last}, chain.shape());
    }
    if (random.below(2) == 0) early = chain.last;
  }
  return chain.finish();
}

RC_GTEST_PROP(ProgramSearch, FindsWhatTheLiteralSearchesFind, (std::uint64_t seed)) {
  SplitMix64 random(seed);
  const ReferenceGraph graph = random_graph(random);
  HapCluster cluster;
  for (std::size_t i = 0; i < 1 + random.below(4); ++i)
    cluster.device_flops.push_back(1 + 10 * random.uniform());
  cluster.bytes_per_second = {.all_gather = 1 + 9 * random.uniform(),
                              .all_reduce = 1 + 9 * random.uniform(),
                              .reduce_scatter = 1 + 9 * random.uniform(),
                              .all_to_all = 1 + 9 * random.uniform(),
                              .grouped_all_gather = 1 + 9 * random.uniform(),
                              .grouped_reduce_scatter = 1 + 9 * random.uniform()};
  const HapCostOptions options{.may_group = random.below(2) == 0,
                               .latency = Seconds(random.below(2) == 0 ? 0.0 : random.uniform())};
  const RuleOptions rule_options{.sound = random.below(2) == 0,
                                 .sufficient_factors = random.below(2) == 0};
  const HapCost cost(cluster, options, proportional_shares(cluster));
  const auto rules = make_rules(graph, rule_options).value();
  const auto program = find_program(graph, rules, cost);
  RC_CLASSIFY(program.has_value());
  // As released, and A* as the paper describes it: the bound changes only the number of expansions.
  LiteralSearch released(graph, rules, cost, Remaining::kIgnored);
  LiteralSearch described(graph, rules, cost, Remaining::kBounded);
  for (LiteralSearch* search : {&released, &described}) {
    const double expected = search->seconds();
    RC_ASSERT(program.has_value() == (expected >= 0));
    if (program) {
      RC_ASSERT(std::abs(program->seconds - expected) <= 1e-9 * expected);
    }
  }
  RC_CLASSIFY(described.expansions() < released.expansions(), "fewer sets by the bound");
}

}  // namespace
}  // namespace motley::peers
