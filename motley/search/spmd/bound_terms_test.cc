#include "motley/search/spmd/bound_terms.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/graph/graph_text.h"
#include "motley/testing/wide_mlp.h"

namespace motley::search {
namespace {

using ::testing::ElementsAre;

/// The wide MLP. Operators: 0 mm, 1 relu, 2 mm, 3 sum; 4 expand, 5 t, 6 mm (gradient of b), 7 t,
/// 8 mm, 9 threshold_backward, 10 t, 11 mm (gradient of a). Readers of relu's %5 are 2, 5 and 9.
class BoundTermsTest : public ::testing::Test {
 protected:
  BoundTermsTest()
      : graph_(graph::parse_graph(mlp_text(8), "wide").value()),
        space_(find_space(graph_, 16, {1, 1})) {}

  BoundTerms terms(const std::vector<double>& seconds) const {
    return find_bound_terms(graph_, space_, seconds);
  }
  static std::vector<std::size_t> with(const std::vector<unsigned>& of, Bounds bound) {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < of.size(); ++i)
      if (of[i] & bound) found.push_back(i);
    return found;
  }
  /// Returns "%4 0: after before", by value and its readers.
  static std::vector<std::string> changes_of(const BoundTerms& terms) {
    const char* const names[] = {"busy", "path",  "lane", "after", "before",
                                 "work", "chain", "late", "end"};
    std::vector<std::string> texts;
    for (const BoundTerms::Change& each : terms.changes) {
      std::string& text = texts.emplace_back(fmt::format("%{}", each.value.value));
      for (const std::size_t reader : each.readers) text += fmt::format(" {}", reader);
      text += ":";
      for (std::size_t b = 0; b < kBounds; ++b)
        if (each.bounds >> b & 1) text += fmt::format(" {}", names[b]);
    }
    return texts;
  }

  const graph::Graph graph_;
  const SpmdSpace space_;
};

// The chain is 0, 1, 9, 11: 12 + 1 + 1 + 12 s, longer than 0, 1, 2, 3 (24 s) and 4, 8, 9, 11 (24
// s). Its last forward operator is relu. 4, 7, 8 and 10 may run until 9 and 11 wait for them; their
// 10 s are too much for a waist at the places 0 and 1. At 9 only 10 remains, which takes no time.
TEST_F(BoundTermsTest, FollowsTheLongestChain) {
  const BoundTerms found = terms({12, 1, 10, 1, 1, 0, 10, 0, 10, 1, 0, 12});
  EXPECT_THAT(with(found.compute, kBusy), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  EXPECT_THAT(with(found.compute, kPath), ElementsAre(0, 1, 4, 7, 8, 9, 11));
  EXPECT_THAT(with(found.compute, kAfter), ElementsAre(0, 1));
  EXPECT_THAT(with(found.compute, kBefore), ElementsAre(2, 3, 5, 6, 9, 11));
  EXPECT_THAT(with(found.inner, kLane), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  EXPECT_THAT(with(found.inner, kPath), ElementsAre(9));
  EXPECT_THAT(with(found.inner, kAfter), ElementsAre(0, 2, 3, 5, 6, 9, 11));
  EXPECT_THAT(with(found.inner, kBefore), ElementsAre(0, 1));
  // Half of the remaining chain ends with the chain.
  EXPECT_THAT(changes_of(found),
              ElementsAre("%13 0: path chain late end", "%5 2: chain", "%4 0: after before chain",
                          "%0 0: before", "%1 0: before"));
  EXPECT_THAT(with(found.compute, kChain), ElementsAre(0, 1, 9, 11));
  EXPECT_THAT(with(found.lanes, kEnd), ElementsAre(15));
}

TEST_F(BoundTermsTest, ExchangesOfWhatDependsOnTheTurnComeAfterIt) {
  const BoundTerms found = terms({12, 1, 10, 1, 1, 0, 10, 0, 10, 1, 0, 12});
  EXPECT_THAT(with(found.lanes, kAfter), ElementsAre(5, 6, 7, 9, 10, 13, 15));
  EXPECT_EQ(with(found.lanes, kLane).size(), graph_.values.size());
}

// If a hundredth of all may run beside the chain, it is left out and the places are waists: here 4,
// 7, 8 and 10 have only 0.1 s of 47.
TEST_F(BoundTermsTest, LittleBesideTheChainIsLeftOut) {
  const BoundTerms found = terms({12, 1, 10, 1, 0, 0, 10, 0, 0.1, 1, 0, 12});
  EXPECT_THAT(with(found.compute, kPath), ElementsAre(0, 1, 9, 11));
  EXPECT_THAT(with(found.compute, kBusy), ElementsAre(0, 1, 2, 3, 5, 6, 9, 11));
  // relu's result has three readers; everything in busy waits for one of them.
  EXPECT_THAT(changes_of(found), ::testing::Contains(::testing::HasSubstr("%5 2: path")));
  EXPECT_THAT(changes_of(found), ::testing::Contains(::testing::StartsWith("%4 0: busy path")));
}

}  // namespace
}  // namespace motley::search
