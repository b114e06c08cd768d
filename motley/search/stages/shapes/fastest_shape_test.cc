#include "motley/search/stages/shapes/fastest_shape.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "motley/testing/table_stage_costs.h"

namespace motley::search {
namespace {

/// Returns, by number of stages, the least seconds over all available configurations.
std::map<std::size_t, double> try_all(const ShapeSearch& search,
                                      const FastestShape::Question& question) {
  const StageCosts& costs = search.sums().costs();
  const std::int64_t rest = question.samples % question.micro_batch;
  std::map<std::size_t, double> least;
  ReplicaShape shape{{}, question.micro_batch};
  const std::function<void(std::size_t)> extend = [&](std::size_t first) {
    if (first == costs.layers()) {
      const std::vector<int> devices = search.devices(shape);
      for (std::size_t pool = 0; pool < devices.size(); ++pool)
        if (devices[pool] > costs.pools()[pool].devices) return;
      if (search.most_samples(shape, 1e15, question.samples) < question.samples) return;
      const double seconds = search.seconds(shape, question.samples);
      const auto [known, is_new] = least.try_emplace(shape.stages.size(), seconds);
      known->second = std::min(known->second, seconds);
      return;
    }
    for (std::size_t end = first + 1; end <= costs.layers(); ++end)
      for (std::size_t unit = 0; unit < costs.units().size(); ++unit) {
        if (!costs.knows(unit, question.micro_batch) || (rest > 0 && !costs.knows(unit, rest)))
          continue;
        shape.stages.push_back({first, end, unit});
        extend(end);
        shape.stages.pop_back();
      }
  };
  extend(0);
  return least;
}

TEST(FastestShape, EqualsTryingAllShapes) {
  std::mt19937_64 random(5);
  int found = 0;
  for (int i = 0; i < 300; ++i) {
    const TableStageCosts costs = random_stage_costs(random, 5, 5);
    ASSERT_TRUE(FastestShape::can_search(costs.pools()));
    const StageSums sums(costs);
    const ShapeSearch search(sums, {});
    FastestShape::Question question;
    question.micro_batch = std::int64_t{1} << (random() % 3);
    // Whole micro-batches, or two full ones around a smaller one.
    question.samples = question.micro_batch * static_cast<std::int64_t>(2 + random() % 6) +
                       static_cast<std::int64_t>(random()) % question.micro_batch;
    if (question.samples < 0) question.samples = 2 * question.micro_batch;
    question.most_stages = costs.layers();
    for (const auto& [stages, seconds] : try_all(search, question)) {
      question.seconds = seconds * (1 + 1e-5);
      const auto in_time = FastestShape(search).find(question);
      ASSERT_TRUE(in_time.contains(stages)) << i << ": " << stages << " stages";
      EXPECT_LE(search.seconds(in_time.at(stages), question.samples), question.seconds) << i;
      question.seconds = seconds * (1 - 1e-5);
      EXPECT_FALSE(FastestShape(search).find(question).contains(stages)) << i;
      ++found;
    }
  }
  EXPECT_GT(found, 300);
}

TEST(FastestShape, IsForClustersWithFewCounts) {
  EXPECT_TRUE(FastestShape::can_search({{"a", "", 16, 8}, {"b", "", 16, 8}}));
  EXPECT_FALSE(FastestShape::can_search({{"a", "", 64, 8}, {"b", "", 64, 8}}));
}

}  // namespace
}  // namespace motley::search
