#include "motley/search/model_stages/model_stage_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "motley/search/model_stages/stage_planner.h"
#include "motley/search/model_stages/stage_recompute.h"
#include "motley/search/split/step_price.h"
#include "motley/search/split/water_filling.h"
#include "motley/search/stages/costs/stage_sums.h"
#include "motley/synth/lower.h"
#include "motley/testing/golden.h"
#include "motley/testing/invented_profile.h"

namespace motley::search {
namespace {

/// Two hosts of four identical devices each; `more` is appended to each device.
cluster::Cluster two_hosts(const std::string& more = "") {
  return *cluster::parse_cluster(
      "schema = \"motley.cluster/1\"\nname = \"two\"\n" +
          node_text("a", "h1", "kind = \"a100-40g\"\ncount = 4" + more) +
          node_text("v", "h2", "kind = \"v100-16g\"\ncount = 4" + more) +
          "[[link]]\nall = true\nbandwidth = \"10Gbps\"\nlatency = \"20us\"\n",
      "two");
}

class ModelStageCostsTest : public ::testing::Test {
 protected:
  explicit ModelStageCostsTest(const cluster::Cluster& cluster = two_hosts())
      : invented_(synth::read_graph("gpt"), cluster, kBatch), problem_(invented_.problem()) {
    inputs_ = {&invented_.evaluator(), &invented_.model().graph, &invented_.costs()};
    auto made = ModelStageCosts::make(inputs_, problem_);
    if (made) costs_ = *std::move(made);
  }

  static constexpr std::int64_t kBatch = 16;
  InventedProfile invented_;
  plan::Problem problem_;
  PlannerInputs inputs_;
  std::unique_ptr<ModelStageCosts> costs_;
};

TEST_F(ModelStageCostsTest, UnitsAreOneTwoAndFourDevicesOfAHost) {
  ASSERT_NE(costs_, nullptr);
  ASSERT_EQ(costs_->pools().size(), 2u);
  for (std::size_t pool = 0; pool < 2; ++pool)
    for (const int degree : {1, 2, 4})
      EXPECT_TRUE(std::any_of(
          costs_->units().begin(), costs_->units().end(),
          [&](const StageUnit& unit) { return unit.pool() == pool && unit.degree() == degree; }))
          << pool << " " << degree;
}

std::vector<Recompute> nothing(std::size_t layers) {
  return std::vector<Recompute>(layers, Recompute::kNothing);
}

TEST_F(ModelStageCostsTest, AllLayersAreTheWholeProgram) {
  ASSERT_NE(costs_, nullptr);
  const std::size_t layers = costs_->layers();
  for (const Recompute how : kRecomputes) {
    costs_->assume({how, how});
    const StageSums sums(*costs_);
    for (std::size_t unit = 0; unit < costs_->units().size(); ++unit) {
      plan::Plan plan = plan::blank_plan(problem_);
      plan.replicas = {
          {kBatch,
           {costs_->regions().region({0, layers, unit, 0, 0}, std::vector(layers, how))},
           1}};
      EXPECT_EQ(plan.replicas[0].regions[0].recomputes.empty(), how == Recompute::kNothing);
      const auto price = invented_.evaluator().price(plan);
      ASSERT_TRUE(price) << price.error().message;
      ASSERT_TRUE(costs_->knows(unit, kBatch));
      const WorkSums& work = sums.work(unit, kBatch);
      // One micro-batch has no gradient accumulation.
      double adding = 0;
      for (const Seconds layer : costs_->times().adding_up(unit)) adding += layer.value;
      EXPECT_GT(adding, 0);
      const double ratio =
          (work.pass(0, layers) - adding + work.update[layers]) / price->step.value;
      EXPECT_GT(ratio, 0.98) << unit;
      // Recomputation hides exchanges of gradients that it does not need.
      const bool hides = how != Recompute::kNothing && costs_->units()[unit].degree() > 1;
      EXPECT_LT(ratio, hides ? 1.1 : 1.02) << unit;
      const std::int64_t held = sums.bytes(unit, 0, layers).total(kBatch, 1);
      EXPECT_NEAR(static_cast<double>(held) / static_cast<double>(price->peaks[0].value), 1, 0.1)
          << unit;
    }
  }
}

/// Two hosts, each with one device of one kind and two of another.
cluster::Cluster two_mixed_hosts() {
  std::string text = "schema = \"motley.cluster/1\"\nname = \"two\"\n";
  for (const std::string name : {"h1", "h2"})
    text += node_text(name, name,
                      "kind = \"a100-40g\"\n  [[node.device]]\nkind = \"v100-16g\"\ncount = 2");
  return *cluster::parse_cluster(
      text + "[[link]]\nall = true\nbandwidth = \"10Gbps\"\nlatency = \"20us\"\n", "two");
}

class MixedModelStageCostsTest : public ModelStageCostsTest {
 protected:
  MixedModelStageCostsTest() : ModelStageCostsTest(two_mixed_hosts()) {}
};

// Devices of both kinds share a stage by speed. The layers' sums match the plan's program: its time
// on the slowest device, and its largest memory, scaled to the smallest device memory.
TEST_F(MixedModelStageCostsTest, UnlikeDevicesShareAStage) {
  ASSERT_NE(costs_, nullptr);
  const std::size_t layers = costs_->layers();
  const StageSums sums(*costs_);
  int mixed = 0;
  for (std::size_t unit = 0; unit < costs_->units().size(); ++unit) {
    if (!costs_->units()[unit].is_mixed()) continue;
    ++mixed;
    EXPECT_EQ(costs_->units()[unit].degree(), 3);
    const plan::Region region =
        costs_->regions().region({0, layers, unit, 1, 0, {0}}, nothing(layers));
    std::vector<std::string> names;
    for (const DeviceId device : region.devices)
      names.push_back(problem_.cluster->device(device).name);
    EXPECT_THAT(names, ::testing::ElementsAre("h2:0", "h2:1", "h2:2"));
    EXPECT_GT(region.shares[0], 0.8 * region.shares[1]);  // so small that launches dominate
    EXPECT_EQ(region.shares[1], region.shares[2]);
    plan::Plan plan = plan::blank_plan(problem_);
    plan.replicas = {{kBatch, {region}, 1}};
    ASSERT_TRUE(plan::verify_plan(plan, problem_.model_hash, *problem_.cluster));
    const auto price = invented_.evaluator().price(plan);
    ASSERT_TRUE(price) << price.error().message;
    ASSERT_TRUE(costs_->knows(unit, kBatch));
    const WorkSums& work = sums.work(unit, kBatch);
    double adding = 0;
    for (const Seconds layer : costs_->times().adding_up(unit)) adding += layer.value;
    EXPECT_NEAR((work.pass(0, layers) - adding + work.update[layers]) / price->step.value, 1, 0.02);
    double most = 0;
    const std::vector<double> scales = costs_->model_units().scales(unit);
    ASSERT_EQ(scales.size(), 3u);
    EXPECT_DOUBLE_EQ(scales[0], 0.4);  // 40 GB beside 16 GB
    for (std::size_t rank = 0; rank < 3; ++rank)
      most = std::max(most, scales[rank] * static_cast<double>(price->peaks[rank].value));
    const std::int64_t held = sums.bytes(unit, 0, layers).total(kBatch, 1);
    EXPECT_NEAR(static_cast<double>(held) / most, 1, 0.1) << unit;
    EXPECT_EQ(costs_->memory(unit), Bytes(std::int64_t{16} << 30));
  }
  EXPECT_GE(mixed, 2);
  costs_->take_memory(0, 0.5);
  EXPECT_EQ(costs_->memory(costs_->units().size() - 1), Bytes(std::int64_t{8} << 30));
  const auto identical = ModelStageCosts::make(inputs_, problem_, UnitKinds::kIdentical);
  ASSERT_TRUE(identical);
  for (const StageUnit& unit : (*identical)->units()) EXPECT_FALSE(unit.is_mixed());
}

// Plans with units of one kind are found first, so further kinds never make the result worse.
TEST_F(MixedModelStageCostsTest, MoreUnitsAreNeverSlower) {
  auto identical = WaterFilling(inputs_).plan(problem_);
  ASSERT_TRUE(identical);
  ASSERT_TRUE(consider_stages(inputs_, problem_, *identical, {.kinds = UnitKinds::kIdentical}));
  const auto all = StagePlanner(inputs_).plan(problem_);
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_LE(all->predicted_step, identical->predicted_step);
  EXPECT_GE(all->considered, identical->considered);
  const auto first = ModelStageCosts::make(inputs_, problem_, UnitKinds::kIdenticalFirst);
  ASSERT_TRUE(first);
  const std::size_t before = (*first)->units().size();
  (*first)->take_memory(0, 0.5);
  EXPECT_TRUE((*first)->offer_mixed());
  EXPECT_EQ((*first)->units(), costs_->units());
  EXPECT_LT(before, costs_->units().size());
  EXPECT_EQ((*first)->memory(0), costs_->memory(0));
  EXPECT_FALSE((*first)->offer_mixed());
}

/// Whole copies of all parameters exceed a tenth of its memories.
class SmallModelStageCostsTest : public ModelStageCostsTest {
 protected:
  SmallModelStageCostsTest() : ModelStageCostsTest(two_hosts("\nmemory = \"300KiB\"")) {}
};

// Each way to share samples with sharded parameters has a variant that gathers again: it is not
// faster, its gathers are work of its layers, and it needs less memory.
TEST_F(SmallModelStageCostsTest, UnitsThatGatherAgain) {
  ASSERT_NE(costs_, nullptr);
  const std::size_t layers = costs_->layers();
  const StageSums sums(*costs_);
  int found = 0;
  for (std::size_t unit = 1; unit < costs_->units().size(); ++unit) {
    const plan::Region region = costs_->regions().region({0, layers, unit, 0, 0}, nothing(layers));
    if (region.parameters.empty() || !region.parameters.front().is_gathered_again) continue;
    ++found;
    plan::Plan plan = plan::blank_plan(problem_);
    plan.replicas = {{kBatch, {region}, 1}};
    const auto again = invented_.evaluator().price(plan);
    ASSERT_TRUE(again) << again.error().message;
    ASSERT_TRUE(costs_->knows(unit, kBatch));
    const WorkSums &work = sums.work(unit, kBatch), &once = sums.work(unit - 1, kBatch);
    double adding = 0;
    for (const Seconds layer : costs_->times().adding_up(unit)) adding += layer.value;
    EXPECT_NEAR((work.pass(0, layers) - adding + work.update[layers]) / again->step.value, 1, 0.02);
    EXPECT_GT(work.pass(0, layers), once.pass(0, layers));
    EXPECT_LT(work.update[layers], once.update[layers]);
    plan.replicas[0].regions[0] =
        costs_->regions().region({0, layers, unit - 1, 0, 0}, nothing(layers));
    const auto kept = invented_.evaluator().price(plan);
    EXPECT_LT(again->peaks[0], kept->peaks[0]);
    EXPECT_GT(again->step, kept->step);
    EXPECT_NEAR(static_cast<double>(sums.bytes(unit, 0, layers).total(kBatch, 1)) /
                    static_cast<double>(again->peaks[0].value),
                1, 0.15);
  }
  EXPECT_EQ(found, 4);  // two and four devices in both pools
}

std::ptrdiff_t count_again(const std::vector<KeptLayer>& layers, Recompute how) {
  return std::count_if(layers.begin(), layers.end(),
                       [&](const KeptLayer& layer) { return layer.again == how; });
}

// As few layers as possible save the missing memory, cheap operators first.
TEST_F(ModelStageCostsTest, MemoryIsSavedLayerByLayer) {
  ASSERT_NE(costs_, nullptr);
  const std::size_t layers = costs_->layers();
  std::vector<KeptLayer> kept =
      kept_layers(*costs_, {0, layers, 0, 0, 0}, {kBatch, 1}, nothing(layers));
  ASSERT_TRUE(save_memory(*costs_, Bytes(1), kept));
  EXPECT_EQ(count_again(kept, Recompute::kCheap), 1);
  EXPECT_EQ(count_again(kept, Recompute::kAll), 0);
  EXPECT_FALSE(save_memory(*costs_, Bytes(std::int64_t{1} << 40), kept));
  EXPECT_GT(count_again(kept, Recompute::kAll), 1);
  EXPECT_EQ(kept.back().again, Recompute::kNothing);  // its backward pass follows at once
}

// Layers that fit in memory are not recomputed: all of them, or as many as fit.
TEST_F(ModelStageCostsTest, SpareMemoryIsUsedLayerByLayer) {
  ASSERT_NE(costs_, nullptr);
  const std::size_t layers = costs_->layers();
  const PlannedStage all{0, layers, 0, 0, 0};
  const KeptSamples samples{kBatch, 1};
  std::vector<KeptLayer> kept =
      kept_layers(*costs_, all, samples, std::vector<Recompute>(layers, Recompute::kAll));
  const std::int64_t least = held_by(*costs_, kept).value,
                     most = held_by(*costs_, kept_layers(*costs_, all, samples, nothing(layers)))
                                .value;
  ASSERT_GT(most, least);
  EXPECT_FALSE(use_memory(*costs_, Bytes(-1), kept));
  EXPECT_EQ(count_again(kept, Recompute::kAll), static_cast<std::ptrdiff_t>(kept.size()));
  EXPECT_TRUE(use_memory(*costs_, Bytes((most - least) / 2), kept));
  EXPECT_LE(held_by(*costs_, kept).value, least + (most - least) / 2);
  EXPECT_TRUE(use_memory(*costs_, Bytes(most - least), kept));
  EXPECT_EQ(count_again(kept, Recompute::kNothing), static_cast<std::ptrdiff_t>(kept.size()));
}

// Two stages of one device need the memory of one stage with all their layers, and save the same.
TEST_F(ModelStageCostsTest, StagesOfOneDeviceSaveTogether) {
  ASSERT_NE(costs_, nullptr);
  const std::size_t layers = costs_->layers(), half = layers / 2;
  const auto of = [&](std::size_t first, std::size_t end) {
    return kept_layers(*costs_, {first, end, 0, 0, 0}, {kBatch, 1}, nothing(end - first));
  };
  std::vector<KeptLayer> one = of(0, layers), two = of(0, half);
  const std::vector<KeptLayer> rest = of(half, layers);
  EXPECT_GT(held_by(*costs_, one), held_by(*costs_, two));
  two.insert(two.end(), rest.begin(), rest.end());
  EXPECT_EQ(held_by(*costs_, one), held_by(*costs_, two));
  (void)save_memory(*costs_, Bytes(std::int64_t{1} << 40), one);
  (void)save_memory(*costs_, Bytes(std::int64_t{1} << 40), two);
  EXPECT_EQ(count_again(one, Recompute::kAll), count_again(two, Recompute::kAll));
  EXPECT_GT(count_again(two, Recompute::kAll), 1);
}

TEST_F(ModelStageCostsTest, RegionsHaveWhatTheirLayersHave) {
  ASSERT_NE(costs_, nullptr);
  const std::size_t layers = costs_->layers(), half = layers / 2;
  for (std::size_t unit = 0; unit < costs_->units().size(); ++unit) {
    if (costs_->units()[unit].degree() != 2) continue;
    const plan::Region first = costs_->regions().region({0, half, unit, 0, 0}, nothing(half)),
                       second = costs_->regions().region({half, layers, unit, 0, 2},
                                                         nothing(layers - half));
    EXPECT_EQ(first.operators.size() + second.operators.size(), invented_.model().graph.ops.size());
    EXPECT_NE(first.devices, second.devices);
    plan::Plan plan = plan::blank_plan(problem_);
    plan.replicas = {{kBatch, {first, second}, 2}};
    EXPECT_TRUE(plan::verify_plan(plan, problem_.model_hash, *problem_.cluster));
    const auto price = invented_.evaluator().price(plan);
    EXPECT_TRUE(price) << price.error().message;
  }
}

// Representative devices take and need exactly what all devices do, to the nanosecond and the byte:
// stages of all units, one and two replicas, few and many micro-batches.
TEST_F(ModelStageCostsTest, AFewDevicesStandForAllOfAStage) {
  ASSERT_NE(costs_, nullptr);
  const std::size_t layers = costs_->layers(), half = layers / 2;
  const auto owned = invented_.costs().model(*problem_.cluster);
  const cost::CostModel& model = *owned;
  std::size_t fewer = 0;
  for (std::size_t a = 0; a < costs_->units().size(); ++a)
    for (std::size_t b = 0; b < costs_->units().size(); ++b) {
      const StageUnit &one = costs_->units()[a], &other = costs_->units()[b];
      const bool is_same_pool = one.pool() == other.pool();
      if (one.degree() == 1 || other.degree() == 1 ||
          (is_same_pool && one.degree() + other.degree() > 4))
        continue;
      const auto stage = [&](std::size_t first, std::size_t end, std::size_t unit, int slot) {
        return costs_->regions().region({first, end, unit, 0, slot}, nothing(end - first));
      };
      plan::Plan plan = plan::blank_plan(problem_);
      plan.replicas = {{kBatch,
                        {stage(0, half, a, 0), stage(half, layers, b, is_same_pool ? 2 : 0)},
                        a % 2 == 0 ? 2 : 4}};
      if (a != b && !is_same_pool && one.degree() == 2 && other.degree() == 2) {
        plan.replicas[0].samples = kBatch / 2;
        plan.replicas.push_back({kBatch / 2, {stage(0, half, a, 2), stage(half, layers, b, 2)}, 2});
      }
      const auto found = invented_.evaluator().price_parts(plan);
      ASSERT_TRUE(found) << found.error().message;
      const auto program = synth::lower(invented_.model().graph, plan, *problem_.cluster);
      ASSERT_TRUE(program) << program.error().message;
      const std::vector<std::string> all;
      const auto wanted = price_program(*program, all, model, model.all_times(*program).value());
      ASSERT_TRUE(wanted) << wanted.error().message;
      EXPECT_EQ(found->step, wanted->price.step) << a << " " << b;
      ASSERT_EQ(found->of_rank.size(), program->devices.size());
      fewer += found->kinds.devices.size() < program->devices.size() ? 1 : 0;
      for (std::size_t rank = 0; rank < program->devices.size(); ++rank) {
        const DevicePrice& device = found->kinds.devices[found->of_rank[rank]];
        EXPECT_EQ(device.memory.total, wanted->price.devices[rank].memory.total);
        EXPECT_EQ(device.parts, wanted->price.devices[rank].parts) << a << " " << b << " " << rank;
      }
    }
  EXPECT_GE(fewer, 4u);  // four of eight, with the tied parameter on both stages
}

// The best split of the batch is not reported as the best plan of stages without a proof.
TEST_F(ModelStageCostsTest, OptimalIsWhatMeetsTheBound) {
  const auto outcome = StagePlanner(inputs_).plan(problem_);
  ASSERT_TRUE(outcome) << outcome.error().message;
  ASSERT_TRUE(outcome->plan);
  EXPECT_LT(outcome->lower_bound * 1.01, outcome->predicted_step);
  EXPECT_EQ(outcome->reason, plan::Reason::kFeasible);
}

// Two stages cut between any two pieces: none is below the bound, each is priced as its program,
// and none is much faster than the found plan, whose space includes them.
TEST_F(ModelStageCostsTest, StagesAreCutInLayers) {
  ASSERT_NE(costs_, nullptr);
  const FinerLayers& pieces = costs_->pieces();
  const std::size_t layers = costs_->layers();
  ASSERT_GT(layers, pieces.first.size() - 1);
  const auto unit = [&](std::size_t pool) {
    std::size_t found = 0;
    while (costs_->units()[found].pool() != pool) ++found;
    return found;
  };
  const auto outcome = StagePlanner(inputs_).plan(problem_);
  ASSERT_TRUE(outcome && outcome->plan);
  EXPECT_LE(outcome->lower_bound, outcome->predicted_step);
  double best = outcome->predicted_step.value;
  std::size_t inside = 0;
  for (std::size_t cut = 1; cut < layers; ++cut) {
    inside += std::binary_search(pieces.first.begin(), pieces.first.end(), cut) ? 0 : 1;
    plan::Plan plan = plan::blank_plan(problem_);
    plan.replicas = {
        {kBatch,
         {costs_->regions().region({0, cut, unit(0), 0, 0}, nothing(cut)),
          costs_->regions().region({cut, layers, unit(1), 0, 0}, nothing(layers - cut))},
         4}};
    const auto price = invented_.evaluator().price(plan);
    ASSERT_TRUE(price) << price.error().message;
    EXPECT_GT(price->step, costs_->least_step());
    best = std::min(best, price->step.value);
  }
  EXPECT_GT(inside, 10u);
  EXPECT_DOUBLE_EQ(best, outcome->predicted_step.value);
}

TEST_F(ModelStageCostsTest, LeastStepIsBelowEveryPlan) {
  ASSERT_NE(costs_, nullptr);
  const Seconds least = costs_->least_step();
  EXPECT_GT(least.value, 0);
  for (std::size_t unit = 0; unit < costs_->units().size(); ++unit) {
    plan::Plan plan = plan::blank_plan(problem_);
    plan.replicas = {
        {kBatch,
         {costs_->regions().region({0, costs_->layers(), unit, 0, 0}, nothing(costs_->layers()))},
         1}};
    EXPECT_LT(least, invented_.evaluator().price(plan)->step);
  }
}

}  // namespace
}  // namespace motley::search
