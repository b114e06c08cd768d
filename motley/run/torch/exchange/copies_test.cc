#include "motley/run/torch/exchange/copies.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cmath>

#include "motley/run/torch/exchange/host_communicator.h"
#include "motley/testing/thread_ranks.h"

namespace motley::run {
namespace {

class CopiesTest : public RendezvousTest {
 protected:
  using Copies = std::map<std::string, at::Tensor>;

  /// Checks what three ranks find after `change` altered their copies.
  void compare(
      const std::function<void(int, Copies&)>& change,
      const std::function<void(int, const Copies&, const std::vector<CopyDifference>&)>& check) {
    CommunicatorOptions options{{{{0, 1, 2}, {}}}, Seconds(10), true};
    on_ranks(3, [&](Rendezvous& rendezvous) {
      auto communicator = make_host_communicator(rendezvous, options);
      ASSERT_TRUE(communicator.has_value()) << communicator.error().message;
      Copies copies{{"bias", at::ones({3})}, {"weight", at::full({2, 2}, 4.0)}};
      change(rendezvous.rank(), copies);
      const auto found = compare_copies(rendezvous, **communicator, "step 5", copies);
      ASSERT_TRUE(found.has_value()) << found.error().message;
      check(rendezvous.rank(), copies, *found);
    });
  }
};

TEST_F(CopiesTest, EqualOnesAreNotSent) {
  compare([](int, Copies&) {},
          [](int, const Copies&, const auto& found) { EXPECT_TRUE(found.empty()); });
}

/// Rank 2's bias differs in a last bit, its weight has an element of 5 instead of 4: a quarter of
/// the largest element, where 1e-5 of it is allowed. All learn of it and restore rank 0's copies.
TEST_F(CopiesTest, AllRanksLearnWhichDifferMostAndTakeRank0s) {
  compare(
      [](int rank, Copies& copies) {
        if (rank != 2) return;
        copies["bias"][0] = std::nextafterf(1, 2);
        copies["weight"][1][0] = 5.0;
      },
      [](int, const Copies& copies, const std::vector<CopyDifference>& found) {
        ASSERT_EQ(found.size(), 1);
        EXPECT_EQ(found[0].rank, 2);
        EXPECT_EQ(found[0].name, "weight");
        EXPECT_EQ(found[0].difference, 1);
        EXPECT_EQ(found[0].allowed, 1e-5 * 4);
        EXPECT_EQ(found[0].tensors, 2);
        EXPECT_FALSE(found[0].is_allowed());
        EXPECT_TRUE(at::equal(copies.at("bias"), at::ones({3})));
        EXPECT_TRUE(at::equal(copies.at("weight"), at::full({2, 2}, 4.0)));
      });
}

TEST_F(CopiesTest, LastBitsAreAllowedAndNoNumberIsNot) {
  compare(
      [](int rank, Copies& copies) {
        if (rank == 1) copies["bias"][0] = std::nextafterf(1, 2);
        if (rank == 2) copies["bias"][0] = std::nan("");
      },
      [](int, const Copies&, const std::vector<CopyDifference>& found) {
        ASSERT_EQ(found.size(), 2);
        EXPECT_TRUE(found[0].is_allowed());
        EXPECT_EQ(found[0].difference, 0x1p-23);
        EXPECT_FALSE(found[1].is_allowed());
      });
}

TEST_F(CopiesTest, WhatIsAllowedFollowsTheTypeAndTheLargestElement) {
  EXPECT_EQ(allowed_difference(at::full({2}, -3.0)), 1e-5 * 3);
  EXPECT_EQ(allowed_difference(at::full({2}, 1.0, at::kBFloat16)), 0x1p-6);
  EXPECT_EQ(allowed_difference(at::full({2}, 1.0, at::kHalf)), 0x1p-9);
  EXPECT_EQ(allowed_difference(at::full({2}, 7, at::kLong)), 0);
}

}  // namespace
}  // namespace motley::run
