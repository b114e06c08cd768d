#include "motley/cost/trust/experience.h"

#include <gtest/gtest.h>

namespace motley::cost {
namespace {

/// Adds `count` runs that took 1 + residual times the prediction.
void add(std::vector<PredictionEntry>& entries, int count, const std::string& model,
         const std::string& cluster, double residual) {
  for (int i = 0; i < count; ++i)
    entries.push_back({model, cluster, "step", 2.0, 2.0 * (1 + residual)});
}

const PredictionEntry kWanted{"m", "c", "step", 1, 1};

TEST(Experience, TakesTheNearestRunsOfWhichThereAreEnough) {
  std::vector<PredictionEntry> entries;
  add(entries, 9, "n", "d", 0.5);
  EXPECT_EQ(find_experience(entries, kWanted, Origin::kMeasured).basis,
            "9 earlier runs in this profile store");
  add(entries, 9, "n", "c", 0.25);
  EXPECT_EQ(find_experience(entries, kWanted, Origin::kMeasured).basis,
            "9 earlier runs on this cluster");
  add(entries, 8, "m", "c", 0.125);
  EXPECT_EQ(find_experience(entries, kWanted, Origin::kMeasured).residuals.size(), 17U);
  add(entries, 1, "m", "c", 0.125);
  const Experience trust = find_experience(entries, kWanted, Origin::kMeasured);
  EXPECT_EQ(trust.basis, "9 earlier runs of this model on this cluster");
  EXPECT_EQ(trust.around(8), (PredictionInterval{9, 8, 9}));
}

TEST(Experience, OtherQuantitiesDoNotCount) {
  std::vector<PredictionEntry> entries;
  add(entries, 9, "m", "c", 0.5);
  const Experience trust = find_experience(entries, {"m", "c", "memory", 1, 1}, Origin::kMeasured);
  EXPECT_EQ(trust.basis, "Motley's benchmark of memory");
}

TEST(Experience, KindsThatAreNotHereRestOnTheBenchmark) {
  std::vector<PredictionEntry> entries;
  add(entries, 20, "m", "c", 0);
  const PredictionInterval kinds = find_experience(entries, kWanted, Origin::kKinds).around(1);
  const PredictionInterval carried = find_experience({}, kWanted, Origin::kCarried).around(1);
  const PredictionInterval modelled = find_experience({}, kWanted, Origin::kModelled).around(1);
  const PredictionInterval measured = find_experience({}, kWanted, Origin::kMeasured).around(1);
  EXPECT_LT(kinds.low, carried.low);
  EXPECT_LT(carried.low, modelled.low);
  EXPECT_LT(modelled.low, measured.low);
  EXPECT_GT(kinds.high, carried.high);
  EXPECT_GT(carried.high, modelled.high);
  EXPECT_GT(modelled.high, measured.high);
}

}  // namespace
}  // namespace motley::cost
