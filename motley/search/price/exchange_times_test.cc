#include "motley/search/price/exchange_times.h"

#include <gtest/gtest.h>

#include <cmath>

#include "motley/testing/golden.h"
#include "motley/testing/invented_profile.h"

namespace motley::search {
namespace {

class ExchangeTimesTest : public ::testing::Test {
 protected:
  const InventedProfile invented_{synth::read_graph("mlp"), three_devices("far"), 4};
  const std::unique_ptr<const cost::CostModel> model_ =
      invented_.costs().model(invented_.cluster());
};

// 50 us per rank and 8 ns per byte over the link. An unmeasured all-gather moves half per byte.
TEST_F(ExchangeTimesTest, AreThoseOfTheGroupsRoute) {
  ExchangeTimes times(*model_, {"a:0", "c:0"});
  EXPECT_NEAR(times.at("motley::all_reduce", 1e6), 100e-6 + 8e-3, 1e-8);
  EXPECT_NEAR(times.at("motley::all_gather", 1e6), 100e-6 + 4e-3, 1e-8);
}

TEST_F(ExchangeTimesTest, OneDeviceExchangesNothing) {
  ExchangeTimes times(*model_, {"a:0"});
  EXPECT_EQ(times.at("motley::all_reduce", 1e6), 0);
}

TEST_F(ExchangeTimesTest, WhatNobodyKnowsTakesForEver) {
  ExchangeTimes times(*model_, {"a:0", "nobody:0"});
  EXPECT_TRUE(std::isinf(times.at("motley::all_reduce", 1e6)));
}

// Native prices 3 MB, grouped 1 MB, at half of 8 ns per byte: only all-reduces were measured.
TEST_F(ExchangeTimesTest, TheFastestMethodIsTheOneThatMovesLeast) {
  ExchangeTimes times(*model_, {"a:0", "b:0", "c:0"});
  const FastestExchange fastest = times.fastest("motley::all_gather", {3e6, 1e6});
  EXPECT_EQ(fastest.method, ExchangeMethod::kGrouped);
  EXPECT_NEAR(fastest.seconds, 150e-6 + 4e-3, 1e-8);
}

}  // namespace
}  // namespace motley::search
