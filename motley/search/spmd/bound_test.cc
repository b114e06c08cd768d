#include "motley/search/spmd/bound.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "motley/base/random.h"
#include "motley/graph/graph_text.h"
#include "motley/search/region/random_region.h"
#include "motley/search/split/split_planner.h"
#include "motley/search/spmd/price_sharding.h"
#include "motley/search/spmd/spmd_search.h"
#include "motley/testing/golden.h"
#include "motley/testing/invented_profile.h"
#include "motley/testing/rounds.h"
#include "motley/testing/wide_mlp.h"

namespace motley::search {
namespace {

using BoundTest = WideMlpTest;

TEST_F(BoundTest, HoldsForRandomWaysAndShares) {
  for (const int width : {64, 1024, 8192}) {
    set_up(width, "", 512);
    const SpmdQuestion question{&model_.graph, &cluster_, &costs_, {}, 512, problem_.devices, {}};
    auto study = SpmdStudy::make(question);
    ASSERT_TRUE(study) << study.error().message;
    const Seconds bound =
        spmd_lower_bound(*study, Seconds(std::numeric_limits<double>::infinity()));
    EXPECT_GT(bound.value, 0);
    SplitMix64 random(static_cast<std::uint64_t>(width));
    for (int draw = 0; draw < 100; ++draw) {
      const std::vector<double> shares = {0.1 + random.uniform(), 0.1 + random.uniform()};
      const SpmdChoices& choices = study->choices(shares);
      std::vector<int> choice;
      for (const int domain : choices.problem.layout().domains)
        choice.push_back(static_cast<int>(random.below(static_cast<std::uint64_t>(domain))));
      const auto plan = price_sharding(*study, problem_.devices,
                                       study->sharding(choices, choice, problem_.devices, shares));
      ASSERT_TRUE(plan) << plan.error().message;
      EXPECT_GE(plan->step.value, bound.value * (1 - 1e-6)) << width;
    }
    if (width < 8192) continue;  // one device alone, which the bound includes, is much faster
    const auto answer = find_spmd_plan(*study);
    ASSERT_TRUE(answer && answer->best);
    EXPECT_LE(answer->best->step.value, 2 * bound.value) << width;  // the bound is not trivial
  }
}

SpmdQuestion question_of(const InventedProfile& invented, const plan::Problem& problem,
                         std::int64_t batch) {
  return {&invented.model().graph,
          problem.cluster,
          &invented.costs(),
          {problem.recipe, problem.batch_norm, problem.bucket_bytes},
          batch,
          problem.devices,
          {}};
}

// One t4 on one node and two on another, with a link too slow to use. The pair's plan must be
// covered, although the first two devices of the kind have a worse connection.
TEST(Bound, HoldsForDevicesOfAKindThatAreJoinedUnequally) {
  const auto cluster = cluster::parse_cluster(
      "schema = \"motley.cluster/1\"\nname = \"uneven\"\n" + node_text("a", "h1", "kind = \"t4\"") +
          node_text("b", "h2", "kind = \"t4\"\ncount = 2") +
          "[[link]]\nall = true\nlatency = \"1ms\"\nbandwidth = \"1Mbps\"\n",
      "uneven");
  ASSERT_TRUE(cluster) << cluster.error().message;
  const InventedProfile invented(*graph::parse_graph(mlp_text(2048), "wide"), *cluster, 2048);
  const plan::Problem problem = invented.problem();
  const SpmdQuestion question = question_of(invented, problem, 2048);
  auto study = SpmdStudy::make(question);
  ASSERT_TRUE(study) << study.error().message;
  const Seconds bound = spmd_lower_bound(*study, Seconds(std::numeric_limits<double>::infinity()));
  const auto found = find_spmd_plan(*study);
  ASSERT_TRUE(found && found->best);
  EXPECT_EQ(found->best->devices, (std::vector<DeviceId>{DeviceId(1), DeviceId(2)}));
  EXPECT_LE(bound, found->best->step);
  EXPECT_GE(bound.value, 0.8 * found->best->step.value);
}

/// Draws two to five different devices, of planning kinds or measured at different speeds.
cluster::Cluster draw_cluster(SplitMix64& random) {
  constexpr const char* kKinds[] = {"a100-40g", "v100-16g", "t4", "rtx3090", "rtx4090"};
  const bool is_planned = random.below(2) == 0;
  std::string text = "schema = \"motley.cluster/1\"\nname = \"drawn\"\n";
  const std::size_t count = 2 + random.below(4);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string kind =
        is_planned ? fmt::format("kind = \"{}\"", kKinds[random.below(std::size(kKinds))])
                   : fmt::format("kind = \"cpu\"\nspeed = {:.2f}", 0.1 + 0.9 * random.uniform());
    text += fmt::format("[[node]]\nname = \"n{}\"\nhost = \"h{}\"\n[[node.device]]\n{}\n", i,
                        random.below(2) == 0 ? 0 : i, kind);
  }
  text += fmt::format("[[link]]\nall = true\nbandwidth = \"{}Mbps\"\nlatency = \"20us\"\n",
                      100 << random.below(10));
  return *cluster::parse_cluster(text, "drawn");
}

/// Draws two to five different devices with fast links.
cluster::Cluster fast_cluster(SplitMix64& random) {
  constexpr const char* kKinds[] = {"a100-40g", "v100-16g", "rtx4090"};
  std::string text = "schema = \"motley.cluster/1\"\nname = \"fast\"\n";
  for (std::size_t i = 0; i < 2 + random.below(2); ++i)
    text += fmt::format(
        "[[node]]\nname = \"n{0}\"\nhost = \"h{0}\"\n[[node.device]]\nkind = \"{1}\"\ncount = "
        "{2}\n",
        i, kKinds[i], 1 + random.below(2));
  return *cluster::parse_cluster(
      text + "[[link]]\nall = true\nbandwidth = \"800Gbps\"\nlatency = \"1us\"\n", "fast");
}

// A step may be below its bound only by the rounding of simulated instructions.
TEST(Bound, HoldsForDrawnPlansOfEveryFamilyOnDrawnDevices) {
  for (const char* model : {"mlp", "cnn", "gpt"}) {
    for (std::uint64_t seed = 1; seed <= testing::rounds(1, 8); ++seed) {
      SCOPED_TRACE(fmt::format("{}, seed {}", model, seed));
      SplitMix64 random(seed);
      const InventedProfile invented(synth::read_graph(model), draw_cluster(random), 12);
      plan::Problem problem = invented.problem();
      const graph::Graph& graph = invented.model().graph;
      const SpmdQuestion question = question_of(invented, problem, 12);
      auto study = SpmdStudy::make(question);
      ASSERT_TRUE(study) << study.error().message;
      const Seconds bound =
          spmd_lower_bound(*study, Seconds(std::numeric_limits<double>::infinity()));
      EXPECT_GT(bound.value, 0);
      for (int draw = 0; draw < 5; ++draw) {
        problem.seed = random.next();
        std::vector<std::string> why;
        const auto region = draw_region(problem, graph, why);
        ASSERT_TRUE(region && *region);
        const auto price = invented.evaluator().price(
            make_region_plan(problem, (*region)->region, (*region)->micro_batches));
        ASSERT_TRUE(price) << price.error().message;
        EXPECT_GE(price->step + price->rounding, bound);
      }
      const auto best = find_spmd_plan(*study);
      ASSERT_TRUE(best && best->best);
      EXPECT_GE(best->best->step.value, best->lower_bound.value * (1 - 1e-6));
    }
  }
}

/// Returns the least ratio of a plan to its bound, over found plans and the best ways for drawn
/// shares, priced for drawn opinions of exchange costs; none is below 1. `turns`: number of
/// interleaved micro-batches.
double nearest_to_bound(const std::vector<std::string>& models, std::uint64_t seeds,
                        std::int64_t turns) {
  double nearest = std::numeric_limits<double>::infinity();
  for (const std::string& model : models) {
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
      SCOPED_TRACE(fmt::format("{}, seed {}", model, seed));
      SplitMix64 random(100 + seed);
      const bool is_wide = model == "wide";
      const std::int64_t batch = turns * static_cast<std::int64_t>(is_wide ? 200 + random.below(800)
                                                                           : 6 + random.below(27));
      const auto graph = is_wide
                             ? graph::parse_graph(mlp_text(1024 << random.below(4)), "wide").value()
                             : synth::read_graph(model);
      const InventedProfile invented(graph, is_wide ? fast_cluster(random) : draw_cluster(random),
                                     batch);
      const plan::Problem problem = invented.problem();
      SpmdQuestion question{&invented.model().graph,
                            problem.cluster,
                            &invented.costs(),
                            {problem.recipe, problem.batch_norm, problem.bucket_bytes},
                            batch,
                            problem.devices,
                            {}};
      question.micro_batches = question.turns = turns;
      auto study = SpmdStudy::make(question);
      EXPECT_TRUE(study) << study.error().message;
      const auto answer = find_spmd_plan(*study);
      EXPECT_TRUE(answer && answer->best);
      double least = answer->best->step.value;
      for (int draw = 0; draw < 12; ++draw) {
        std::vector<DeviceId> devices;
        std::vector<double> shares;
        for (std::size_t i = 0; i < problem.devices.size(); ++i) {
          if (problem.devices.size() - i + devices.size() > 2 && random.below(4) == 0) continue;
          devices.push_back(problem.devices[i]);
          shares.push_back(study->speeds()[i] * (0.5 + random.uniform()));
        }
        const SpmdChoices& choices = study->choices(shares);
        SpmdPrices prices = study->prices(choices.space, devices, shares);
        SpmdObjective objective;
        objective.exchange = 0.5 * static_cast<double>(random.below(3));
        objective.gradient_exchange = 0.5 * static_cast<double>(random.below(3));
        const TableSolution solution =
            choices.problem.solve(choices.problem.costs(prices, objective));
        const auto plan = price_sharding(
            *study, devices, study->sharding(choices, solution.choice, devices, shares));
        EXPECT_TRUE(plan) << plan.error().message;
        least = std::min(least, plan->step.value);
      }
      constexpr double kForever = std::numeric_limits<double>::infinity();
      for (const double known : {kForever, 1.05 * least, least}) {
        const double bound = spmd_lower_bound(*study, Seconds(known), BoundedBatches::kOne).value;
        EXPECT_LE(bound, least * (1 + 1e-6)) << known;
        EXPECT_GT(bound, 0);
        if (known == least) nearest = std::min(nearest, least / bound);
      }
    }
  }
  return nearest;
}

// With one micro-batch the bound knows shares and whole samples, and plans below a known one have
// no larger share. The nearest plan's ratio shows that a bound too high by as much would be found.
TEST(Bound, HoldsForTheBestWaysAtManyShares) {
  EXPECT_LT(nearest_to_bound({"cnn", "gpt", "wide"}, testing::rounds(3, 30), 1), 1.1);
}

TEST(Bound, HoldsForMicroBatchesThatTakeTurns) {
  EXPECT_LT(nearest_to_bound({"gpt", "wide"}, testing::rounds(3, 30), 2), 1.15);
}

/// Builds a chain of small operators that cost only launches.
graph::Graph launches_graph(int operators) {
  std::string text =
      "motley.graph/1\nname \"launches\"\nsize batch 1 4096\ninput %0: f32[batch, 8] \"x\"\n"
      "param %1: f32[8, 8] \"w\"\ntangent %2: f32[]\nop %3: f32[8, batch] = aten::t(%0) bwd \"\"\n"
      "op %4: f32[batch, 8] = aten::mm(%0, %1) fwd \"\"\n";
  int next = 5;
  for (; next < 5 + operators; ++next)
    text += fmt::format("op %{}: f32[batch, 8] = aten::relu(%{}) fwd \"\"\n", next, next - 1);
  text += fmt::format(
      "op %{0}: f32[] = aten::sum(%{1}, none) fwd \"\"\n"
      "op %{2}: f32[batch, 8] = aten::expand(%2, [size(batch), 8], false) bwd \"\"\n"
      "op %{3}: f32[8, 8] = aten::mm(%3, %{2}) bwd \"\"\noutput loss %{0}\n"
      "output gradient %{3} of \"w\"\n",
      next, next - 1, next + 1, next + 2);
  return *graph::parse_graph(text, "launches");
}

// Everything takes twice as long beside neighbours. So one device alone is faster than its part of
// any group, and the bound covers both settings: it is not above the step of one device, priced by
// the same model, with or without micro-batches.
TEST(Bound, HoldsForOneDeviceWhereNeighboursSlowTheOthers) {
  const InventedProfile invented(launches_graph(40), three_devices("emulated"), 4, 2.0);
  const plan::Problem problem = invented.problem();
  const SpmdQuestion question = question_of(invented, problem, 4);
  auto study = SpmdStudy::make(question);
  ASSERT_TRUE(study) << study.error().message;
  const Seconds bound = spmd_lower_bound(*study, Seconds(std::numeric_limits<double>::infinity()));
  plan::Plan alone = make_split_plan(problem, {{problem.devices[0]}, {4}});
  const auto whole = invented.evaluator().price(alone);
  alone.replicas[0].micro_batches = 2;
  const auto in_two = invented.evaluator().price(alone);
  ASSERT_TRUE(whole && in_two);
  EXPECT_GE(whole->step + whole->rounding, bound);
  EXPECT_GE(in_two->step + in_two->rounding, bound);
  EXPECT_LT(whole->step.value, 2 * bound.value);  // the bound is not trivial
}

}  // namespace
}  // namespace motley::search
