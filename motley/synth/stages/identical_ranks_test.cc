#include "motley/synth/stages/identical_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley::synth {
namespace {

using ::testing::ElementsAre;

std::vector<std::vector<std::size_t>> find(const IdenticalRanks& ranks) {
  std::vector<std::vector<std::size_t>> found;
  for (const IdenticalRanks::StandIn& each : ranks.find()) found.push_back(each.ranks);
  return found;
}

/// Two regions of four ranks, 0 to 3 and 4 to 7, each of which sends to the one in its place.
IdenticalRanks two_regions() {
  IdenticalRanks ranks(8);
  for (std::size_t rank = 0; rank < 8; ++rank) ranks.note(rank, rank < 4 ? 0 : 1);
  for (std::size_t rank = 0; rank < 4; ++rank) ranks.join({rank, rank + 4}, {0, 100});
  return ranks;
}

TEST(IdenticalRanks, PairsThatDoTheSameAreOneKind) {
  EXPECT_THAT(find(two_regions()), ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5, 6, 7)));
}

TEST(IdenticalRanks, OneThatDoesSomethingElseTakesItsPartnerWithIt) {
  IdenticalRanks ranks = two_regions();
  ranks.note(5, 7);
  EXPECT_THAT(find(ranks), ElementsAre(ElementsAre(0, 2, 3), ElementsAre(1), ElementsAre(4, 6, 7),
                                       ElementsAre(5)));
}

TEST(IdenticalRanks, WhoExchangesOtherThingsIsNotIdentical) {
  IdenticalRanks ranks(6);
  for (std::size_t rank = 0; rank < 6; ++rank) ranks.note(rank, rank < 3 ? 0 : 1);
  for (std::size_t rank = 0; rank < 3; ++rank)
    ranks.join({rank, rank + 3}, {0, rank == 1 ? 99 : 100});
  EXPECT_THAT(find(ranks),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1), ElementsAre(3, 5), ElementsAre(4)));
}

// 0 sends to 1 and 2, 3 to 4 and 5: the order of a pair counts.
TEST(IdenticalRanks, WhoSendsIsNotIdenticalToWhoReceives) {
  IdenticalRanks ranks(6);
  for (const std::size_t to : {1u, 2u}) ranks.join({0, to}, {});
  for (const std::size_t to : {4u, 5u}) ranks.join({3, to}, {});
  EXPECT_THAT(find(ranks), ElementsAre(ElementsAre(0, 3), ElementsAre(1, 4), ElementsAre(2, 5)));
  IdenticalRanks turned(4);
  turned.join({0, 1}, {});
  turned.join({3, 2}, {});
  EXPECT_THAT(find(turned),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2), ElementsAre(3)));
}

TEST(IdenticalRanks, SetsHaveNumbers) {
  const std::vector<IdenticalRanks::StandIn> found = two_regions().find();
  EXPECT_EQ(found[0].set, found[1].set);
  IdenticalRanks apart(2);
  apart.note(1, 1);
  EXPECT_NE(apart.find()[0].set, apart.find()[1].set);
}

TEST(IdenticalRanks, WhoExchangesWithNobodyIsAloneOrIdentical) {
  IdenticalRanks ranks(3);
  ranks.note(2, 1);
  EXPECT_THAT(find(ranks), ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
}

}  // namespace
}  // namespace motley::synth
