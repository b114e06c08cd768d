#include "motley/search/model_stages/paired_stages.h"

#include <gtest/gtest.h>

namespace motley::search {
namespace {

/// Three stages in 6 micro-batches; the first has 3 in flight.
plan::Plan three_stages() {
  plan::Plan plan;
  plan::Replica& replica = plan.replicas.emplace_back();
  replica.micro_batches = 6;
  replica.regions.resize(3);
  replica.regions[0].ahead = 3;
  return plan;
}

std::vector<std::int64_t> ahead(const plan::Plan& plan) {
  std::vector<std::int64_t> found;
  for (const plan::Region& region : plan.replicas[0].regions) found.push_back(region.ahead);
  return found;
}

// Two stages come after the first, none after the last, which has 1 in flight with 1F1B. Never more
// in flight than micro-batches.
TEST(PairedStages, HaveMoreUnderWay) {
  const std::vector<WaitingStage> both = {{0, 0}, {0, 2}};
  const auto made = [&](MoreAhead more) { return pair_stages(three_stages(), both, more); };
  EXPECT_EQ(ahead(made(MoreAhead::kNothing)), (std::vector<std::int64_t>{3, 0, 1}));
  EXPECT_EQ(ahead(made(MoreAhead::kBehind)), (std::vector<std::int64_t>{5, 0, 1}));
  EXPECT_EQ(ahead(made(MoreAhead::kBehindAndOne)), (std::vector<std::int64_t>{6, 0, 2}));
  plan::Plan full = three_stages();
  full.replicas[0].micro_batches = 4;
  EXPECT_EQ(ahead(pair_stages(full, both, MoreAhead::kBehind)),
            (std::vector<std::int64_t>{4, 0, 1}));
  const plan::Plan paired = made(MoreAhead::kNothing);
  EXPECT_EQ(paired.replicas[0].regions[0].turns, 2);
  EXPECT_LT(paired.replicas[0].regions[1].turns, 2);
  EXPECT_EQ(paired.replicas[0].regions[2].turns, 2);
}

}  // namespace
}  // namespace motley::search
