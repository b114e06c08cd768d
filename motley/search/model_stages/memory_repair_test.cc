#include "motley/search/model_stages/memory_repair.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "motley/testing/golden.h"
#include "motley/testing/invented_profile.h"

namespace motley::search {
namespace {

/// All layers on the first of two identical devices, which have so many bytes each ("": their own).
class OneStage {
 public:
  explicit OneStage(const std::string& memory = "")
      : invented_(synth::read_graph("gpt"), cluster(memory), kBatch),
        problem_(invented_.problem()) {
    inputs_ = {&invented_.evaluator(), &invented_.model().graph, &invented_.costs()};
    costs = *ModelStageCosts::make(inputs_, problem_);
    found.plan.replicas = {{{{0, costs->layers(), 0, 0, 0}}, kBatch, kBatch}};
    StageSpan span;
    span.in_flight = 1;
    found.price.spans = {{span}};
  }
  explicit OneStage(double memory) : OneStage(fmt::format("\nmemory = {}", std::llround(memory))) {}

  Again again(Recompute how) const {
    const std::size_t layers = costs->pieces().parts(0, costs->layers()).size();
    return {{std::vector<Recompute>(layers, how)}};
  }
  double held(const Again& again) const {
    return static_cast<double>(held_by(*costs, kept_layers(*costs, found.plan.replicas[0].stages[0],
                                                           {kBatch, kBatch}, again[0][0]))
                                   .value);
  }
  plan::Price price(double peak) const { return {Seconds(1), {Bytes(std::llround(peak))}, {}}; }
  MemoryRepair repair() { return {problem_, *costs}; }

  std::unique_ptr<ModelStageCosts> costs;
  PricedStagePlan found;

 private:
  static constexpr std::int64_t kBatch = 16;
  static cluster::Cluster cluster(const std::string& memory) {
    return *cluster::parse_cluster(
        "schema = \"motley.cluster/1\"\nname = \"one\"\n" +
            node_text("a", "h1", "kind = \"a100-40g\"\ncount = 2" + memory),
        "one");
  }

  InventedProfile invented_;
  plan::Problem problem_;
  PlannerInputs inputs_;
};

const double kMost = [] {
  const OneStage stage;
  return stage.held(stage.again(Recompute::kNothing));
}();
const double kLeast = [] {
  const OneStage stage;
  return stage.held(stage.again(Recompute::kAll));
}();

TEST(MemoryRepair, WhatFitsIsNotRecomputed) {
  OneStage stage(kMost);
  Again again = stage.again(Recompute::kNothing);
  Lacking lacking;
  EXPECT_TRUE(stage.repair().save_by_layers(stage.found, lacking, again));
  EXPECT_TRUE(lacking.empty());
  EXPECT_EQ(again, stage.again(Recompute::kNothing));
}

TEST(MemoryRepair, RecomputesUntilItFits) {
  const double memory = (kMost + kLeast) / 2;
  OneStage stage(memory);
  Again again = stage.again(Recompute::kNothing);
  Lacking lacking;
  EXPECT_TRUE(stage.repair().save_by_layers(stage.found, lacking, again));
  EXPECT_EQ(lacking.size(), 1u);
  EXPECT_NEAR(static_cast<double>(lacking[DeviceId(0)].value), kMost - memory, 2);
  EXPECT_LE(stage.held(again), memory);
  EXPECT_GT(stage.held(again), kLeast);
}

TEST(MemoryRepair, SaysThatNothingIsEnough) {
  OneStage stage(kLeast / 2);
  Again again = stage.again(Recompute::kNothing);
  Lacking lacking;
  EXPECT_FALSE(stage.repair().save_by_layers(stage.found, lacking, again));
  EXPECT_EQ(stage.held(again), kLeast);
  EXPECT_FALSE(stage.repair().save(stage.found, {{DeviceId(0), Bytes(1)}}, again));
}

// The least that any program held beyond its layers counts.
TEST(MemoryRepair, LearnsWhatProgramsHold) {
  OneStage stage(1.2 * kMost);
  MemoryRepair repair = stage.repair();
  Again nothing = stage.again(Recompute::kNothing), again = nothing;
  Lacking lacking;
  repair.learn(stage.found, stage.price(1.5 * kMost), nothing);
  (void)repair.save_by_layers(stage.found, lacking, again);
  EXPECT_NEAR(static_cast<double>(lacking[DeviceId(0)].value), 0.3 * kMost, 2);
  EXPECT_NE(again, nothing);
  repair.learn(stage.found, stage.price(1.1 * kMost), nothing);
  lacking.clear();
  again = nothing;
  EXPECT_TRUE(repair.save_by_layers(stage.found, lacking, again));
  EXPECT_TRUE(lacking.empty());
  EXPECT_EQ(again, nothing);
}

// A device that lacks a quarter of its memory may use 1 / 1.25 of it next, and 2 % less.
TEST(MemoryRepair, NextSearchHasLessMemory) {
  OneStage stage(kMost);
  MemoryRepair repair = stage.repair();
  EXPECT_FALSE(repair.take_noted(false));
  const Lacking lacking = {{DeviceId(0), Bytes(std::llround(kMost / 4))}};
  repair.note(stage.found.plan, lacking, false);
  EXPECT_FALSE(repair.take_noted(true));
  repair.note(stage.found.plan, lacking, true);
  EXPECT_TRUE(repair.take_noted(true));
  EXPECT_NEAR(static_cast<double>(stage.costs->pools()[0].memory.value), 0.98 * kMost / 1.25, 2);
  repair.forget_noted();
  EXPECT_FALSE(repair.take_noted(false));
}

}  // namespace
}  // namespace motley::search
