#include "motley/adapt/learned_exchanges.h"

#include <gmock/gmock.h>

#include "motley/base/json.h"

namespace motley::adapt {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;

policy::StepSeen exchanged_by(std::size_t devices, std::vector<double> exchange, double blocking) {
  policy::StepSeen step{.global_batch = 8, .exchange = std::move(exchange), .blocking = blocking};
  for (std::size_t i = 0; i < devices; ++i)
    step.devices.push_back({"d" + std::to_string(i), 4, {}, 1, {}});
  return step;
}

TEST(LearnedExchanges, AreThoseOfTheNearestNumberWithoutABelief) {
  LearnedExchanges learned;
  EXPECT_TRUE(learned.of(3).exchange.empty());  // nothing is known
  for (const double seconds : {0.1, 0.5, 0.2})
    learned.observe(exchanged_by(2, {seconds, 0.3}, 0.05));
  learned.observe(exchanged_by(6, {0.4, 0.6}, 0.1));
  EXPECT_THAT(learned.of(3).exchange, ElementsAre(0.2, 0.3));
  EXPECT_EQ(learned.of(3).blocking, 0.05);
  EXPECT_THAT(learned.of(5).exchange, ElementsAre(0.4, 0.6));
  learned.observe(exchanged_by(5, {0.3, 0.5}, 0.1));
  EXPECT_THAT(learned.of(5).exchange, ElementsAre(0.3, 0.5));
}

// The header's example, with blocking.
TEST(LearnedExchanges, AreBelievedOffAsTheNearestNumberIs) {
  LearnedExchanges learned({{{0.008}, 0.002}, {{0.015}, 0.005}});
  EXPECT_THAT(learned.of(2).exchange, ElementsAre(0.008));
  EXPECT_THAT(learned.of(9).exchange, ElementsAre(0.015));  // as for the most
  learned.observe(exchanged_by(3, {0.020}, 0.010));
  EXPECT_THAT(learned.of(3).exchange, ElementsAre(0.020));
  EXPECT_THAT(learned.of(2).exchange, ElementsAre(DoubleEq(0.010)));
  EXPECT_DOUBLE_EQ(learned.of(2).blocking, 0.005);
}

TEST(LearnedExchanges, OfADeviceAloneAreNoneAndSayNothingOfSeveral) {
  LearnedExchanges learned({{{0.01}, 0}});
  learned.observe(exchanged_by(1, {0}, 0));
  EXPECT_THAT(learned.of(2).exchange, ElementsAre(0.01));
  learned.observe(exchanged_by(2, {0.02}, 0));
  EXPECT_TRUE(learned.of(1).exchange.empty());
  EXPECT_EQ(learned.of(1).blocking, 0);
}

TEST(LearnedExchanges, OfOtherPartsReplaceThem) {
  LearnedExchanges learned;
  learned.observe(exchanged_by(2, {0.1}, 0));
  learned.observe(exchanged_by(3, {0.1, 0.2}, 0));
  EXPECT_THAT(learned.of(2).exchange, ElementsAre(0.1, 0.2));
}

TEST(LearnedExchanges, AreRestored) {
  LearnedExchanges learned, other;
  for (int i = 0; i < 20; ++i) learned.observe(exchanged_by(2 + i % 2, {0.1 * i, 0.3}, 0.05));
  ASSERT_TRUE(other.restore(parse_json(learned.state().dump(), "x").value(), "x"));
  EXPECT_EQ(other.state(), learned.state());
  EXPECT_EQ(other.of(3).exchange, learned.of(3).exchange);
  for (const char* bad :
       {"{}", R"([{"devices":1,"exchanges":[[0.1]]}])", R"([{"devices":2,"exchanges":[]}])",
        R"([{"devices":2,"exchanges":[[]]}])", R"([{"devices":2,"exchanges":[[0.1],[0.1,0.2]]}])"})
    EXPECT_FALSE(other.restore(parse_json(bad, "x").value(), "x")) << bad;
  EXPECT_EQ(other.state(), learned.state());
}

}  // namespace
}  // namespace motley::adapt
