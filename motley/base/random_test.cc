#include "motley/base/random.h"

#include <gmock/gmock.h>

#include <map>

namespace motley {
namespace {

using ::testing::ElementsAre;

// The known-answer vectors published with Random123 (kat_vectors, philox4x32 10 rounds).
TEST(Philox, GivesThePublishedVectors) {
  EXPECT_THAT(philox4x32({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(
      philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
      ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(
      philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

// The reference sequence of Vigna's splitmix64 for seed 1234567.
TEST(SplitMix, GivesTheReferenceSequence) {
  SplitMix64 random(1234567);
  EXPECT_EQ(random.next(), 6457827717110365317u);
  EXPECT_EQ(random.next(), 3203168211198807973u);
  EXPECT_EQ(random.next(), 9817491932198370423u);
}

TEST(SplitMix, DrawsEveryNumberBelowTheBoundAboutEquallyOften) {
  SplitMix64 random(7);
  std::map<std::uint64_t, int> count;
  for (int i = 0; i < 6000; ++i) ++count[random.below(6)];
  ASSERT_EQ(count.size(), 6u);
  // 1000 of each expected, standard deviation sqrt(6000 * 1/6 * 5/6) = 29; allows five of them.
  for (const auto& [number, times] : count) EXPECT_NEAR(times, 1000, 145) << number;
}

TEST(SplitMix, UniformLiesBelowOne) {
  SplitMix64 random(11);
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double drawn = random.uniform();
    ASSERT_GE(drawn, 0);
    ASSERT_LT(drawn, 1);
    sum += drawn;
  }
  // Mean 0.5, standard deviation 1 / sqrt(12 * 10000) = 0.0029; allows five of them.
  EXPECT_NEAR(sum / 10000, 0.5, 0.0145);
}

// XXH3_64bits of the empty input, from the algorithm's own test vectors.
TEST(HashHex, IsXxh3) {
  EXPECT_EQ(hash_hex(""), "2d06800538d394c2");
  EXPECT_NE(hash_hex("a"), hash_hex("b"));
  EXPECT_EQ(hash_hex("a").size(), 16u);
}

}  // namespace
}  // namespace motley
