#include "motley/plan/shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <numeric>

namespace motley::plan {
namespace {

using ::testing::ElementsAre;

TEST(RoundShares, GivesTheRestToTheLargestRemainders) {
  EXPECT_THAT(round_shares({3, 1}, 9), ElementsAre(7, 2));
  EXPECT_THAT(round_shares({1, 1, 1}, 4), ElementsAre(2, 1, 1));
  EXPECT_THAT(round_shares({0.5, 0, 0.5}, 3), ElementsAre(2, 0, 1));
  EXPECT_THAT(round_shares({0.2, 0.8}, 0), ElementsAre(0, 0));
}

RC_GTEST_PROP(RoundShares, SumsUpAndStaysWithinOne, ()) {
  const auto given = *rc::gen::nonEmpty<std::vector<std::uint8_t>>();
  const std::int64_t extent = *rc::gen::inRange<std::int64_t>(0, 10'000);
  std::vector<double> shares(given.begin(), given.end());
  const double total = std::accumulate(shares.begin(), shares.end(), 0.0);
  RC_PRE(total > 0);
  const auto parts = round_shares(shares, extent);
  RC_ASSERT(std::accumulate(parts.begin(), parts.end(), std::int64_t{0}) == extent);
  for (std::size_t i = 0; i < parts.size(); ++i)
    RC_ASSERT(std::abs(static_cast<double>(parts[i]) -
                       static_cast<double>(extent) * shares[i] / total) < 1 + 1e-9);
}

TEST(PartsText, NamesFewAndSumsUpMany) {
  EXPECT_EQ(parts_text({14, 13, 0}), "14:13:0");
  EXPECT_EQ(samples_text({14, 13, 0}), "14:13:0");
  std::vector<std::int64_t> many(64, 62);
  EXPECT_EQ(samples_text(many), "64 devices, 62 each");
  many[5] = 63;
  EXPECT_EQ(parts_text(many), "62 to 63");
  EXPECT_EQ(samples_text(many), "64 devices, 62 to 63 each");
}

}  // namespace
}  // namespace motley::plan
