#include "motley/search/stages/shapes/shape_search.h"

#include <gtest/gtest.h>

#include <cmath>

#include "motley/search/stages/shapes/sample_bound.h"
#include "motley/testing/all_shapes.h"
#include "motley/testing/rounds.h"
#include "motley/testing/table_stage_costs.h"

namespace motley::search {
namespace {

std::vector<ReplicaShape> valid_shapes(const ShapeSearch& search) {
  std::vector<ReplicaShape> shapes = all_shapes(search.sums().costs());
  std::erase_if(shapes, [&](const ReplicaShape& shape) { return !search.is_valid(shape); });
  return shapes;
}

// Two stages of 2 layers on two devices: 6 s of work per sample and stage. 3 micro-batches of one
// sample: 6 s in the first, then 18 s in the second.
TEST(ShapeSearch, EqualStagesTakeTheClosedForm) {
  const TableStageCosts costs = even_stage_costs(4, 1, 2);
  const StageSums sums(costs);
  const ShapeSearch search(sums, {});
  const ReplicaShape shape{{{0, 2, 0}, {2, 4, 0}}, 1};
  EXPECT_NEAR(search.seconds(shape, 3), 24, 1e-6);
  EXPECT_EQ(search.most_samples(shape, 24.1, 100), 3);
  EXPECT_EQ(search.most_samples(shape, 23.9, 100), 2);
}

// A unit of two devices knows micro-batches of 4 samples alone: no smaller one may be the last.
TEST(ShapeSearch, TakesNoSmallerLastMicroBatchThatNobodyKnows) {
  TableStageCosts costs = even_stage_costs(4, 1, 2);
  costs.device_pools[0].per_host = 2;
  costs.all_units = {search::StageUnit(0, 2)};
  costs.least_of_wide = 4;
  const StageSums sums(costs);
  const ShapeSearch search(sums, {});
  const ReplicaShape shape{{{0, 4, 0}}, 4};
  EXPECT_TRUE(std::isinf(search.seconds(shape, 5)));
  for (const std::int64_t most : {4, 5, 7}) EXPECT_EQ(search.most_samples(shape, 1e6, most), 4);
  EXPECT_EQ(search.most_samples(shape, 1e6, 8), 8);
  EXPECT_FALSE(search.cheapest({1e6, 5, 4, {1.0}}));
  EXPECT_TRUE(search.cheapest({1e6, 8, 4, {1.0}}));
}

// In 24 s one device does 2 samples of 12 s, two in a pipeline 3. At a price of 1 per device the 2
// samples cost 1 and the 3 cost 2.
TEST(ShapeSearch, FindsTheCheapestShape) {
  const TableStageCosts costs = even_stage_costs(4, 1, 2);
  const StageSums sums(costs);
  const ShapeSearch search(sums, {});
  EXPECT_EQ(search.cheapest({24.1, 2, 1, {1.0}})->cost, 1);
  const auto three = search.cheapest({24.1, 3, 1, {1.0}});
  EXPECT_EQ(three->cost, 2);
  EXPECT_EQ(three->shape, (ReplicaShape{{{0, 2, 0}, {2, 4, 0}}, 1}));
  EXPECT_FALSE(search.cheapest({24.1, 3, 1, {1.0}, 0, 2.0}));
}

TEST(ShapeSearch, EqualsTryingAllShapes) {
  std::mt19937_64 random(7);
  std::size_t found = 0;
  for (std::size_t i = 0; i < testing::rounds(150, 500); ++i) {
    TableStageCosts costs = random_stage_costs(random, 6, 5);
    ShapeLimits limits;
    if (i % 5 > 2 && costs.device_pools.size() > 1) {
      // Two pools of a kind, with ranges that are disjoint or overlap.
      costs.device_pools[1].kind = costs.device_pools[0].kind;
      limits.mix = i % 5 == 3 ? UnitMix::kOneKind : UnitMix::kOnePool;
      if (limits.mix == UnitMix::kOneKind) {
        const std::size_t cut = 1 + random() % 5;
        limits.stretches.assign(costs.device_pools.size(), {cut - 1, 6});
        limits.stretches[0] = {0, cut};
      }
    }
    const StageSums sums(costs);
    const ShapeSearch search(sums, {i % 2 == 0 ? 0.0 : 1.5}, limits);
    const std::vector<ReplicaShape> shapes = valid_shapes(search);
    ShapeQuestion question;
    for (std::size_t pool = 0; pool < costs.pools().size(); ++pool)
      question.prices.push_back(0.5 + static_cast<double>(random() % 8));
    question.replica_price = static_cast<double>(random() % 3);
    question.samples = 1 + static_cast<std::int64_t>(random() % 9);
    question.micro_batch = std::int64_t{1} << (random() % 3);
    question.seconds = 40.0 * static_cast<double>(1 + random() % 12);
    const bool has_full_ends =
        question.samples % question.micro_batch == 0 || question.samples > 2 * question.micro_batch;
    double best = INFINITY;
    for (const ReplicaShape& shape : shapes) {
      if (shape.micro_batch != question.micro_batch ||
          (!has_full_ends && shape.stages.size() > 1) ||
          search.seconds(shape, question.samples) > question.seconds)
        continue;
      double cost = question.replica_price;
      const std::vector<int> devices = search.devices(shape);
      for (std::size_t pool = 0; pool < devices.size(); ++pool)
        cost += question.prices[pool] * devices[pool];
      best = std::min(best, cost);
    }
    const auto answer = search.cheapest(question);
    if (std::isinf(best)) {
      // A replica of few micro-batches keeps fewer in flight than is_valid requires.
      continue;
    }
    ASSERT_TRUE(answer) << i;
    ++found;
    if (search.is_valid(answer->shape))
      EXPECT_NEAR(answer->cost, best, 1e-9 * best) << i;
    else
      EXPECT_LE(answer->cost, best * (1 + 1e-9)) << i;
  }
  EXPECT_GT(found, testing::rounds(30, 100));
}

// Each kind does one layer in 3 s per sample and the other in 30: alone 33 s, together 3 s.
TEST(RateBound, KindsThatAreBetterAtUnlikeLayersDoMoreTogether) {
  TableStageCosts costs = even_stage_costs(2, 2, 1);
  costs.forward = {{1, 10}, {10, 1}};
  costs.backward = {{2, 20}, {20, 2}};
  const StageSums sums(costs);
  EXPECT_NEAR(rate_bound(sums, 10), 30, 1e-9);
  EXPECT_NEAR(device_rates(sums)[0], 1.0 / 6, 1e-9);
}

TEST(SampleBound, EqualsTheProgramOverAllShapes) {
  std::mt19937_64 random(11);
  int possible = 0, impossible = 0;
  for (int i = 0; i < 500; ++i) {
    TableStageCosts costs = random_stage_costs(random, 5, 5);
    const StageSums sums(costs);
    const ShapeSearch search(sums, {i % 2 == 0 ? 0.0 : 1.5});
    const auto samples = static_cast<std::int64_t>(8 + random() % 24);
    const double seconds =
        rate_bound(sums, samples) * (1 + 0.1 * static_cast<double>(random() % 12));
    std::vector<double> limits;
    for (const DevicePool& pool : costs.pools()) limits.push_back(pool.devices);
    limits.push_back(3);
    PackingLp all(limits);
    for (const ReplicaShape& shape : valid_shapes(search)) {
      const std::int64_t does = search.most_samples(shape, seconds, samples);
      std::vector<double> entries;
      for (const int devices : search.devices(shape)) entries.push_back(devices);
      entries.push_back(1);
      if (does > 0) all.add(static_cast<double>(does), entries);
    }
    const double most = all.solve();
    ShapeColumns columns;
    SampleBound bound(search, columns, 3);
    const SampleAnswer answer = bound.ask(seconds, samples);
    const auto wanted = static_cast<double>(samples);
    if (most >= wanted) {
      EXPECT_TRUE(answer.is_possible) << i << ": " << most << " of " << samples;
      ++possible;
    } else if (!answer.is_possible) {
      ++impossible;
      // The proof: the total worth of all devices.
      double worth = 0;
      for (std::size_t k = 0; k < limits.size(); ++k) worth += answer.prices[k] * limits[k];
      EXPECT_LT(worth, wanted) << i;
    } else {
      // Only within the slack of half a sample, or with fewer micro-batches in flight.
      EXPECT_GT(most, 0.5 * wanted - 1) << i;
    }
  }
  EXPECT_GT(possible, 50);
  EXPECT_GT(impossible, 50);
}

}  // namespace
}  // namespace motley::search
