#include "motley/job/generations.h"

#include <gmock/gmock.h>

namespace motley::job {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(Generations, AChangeThatIsAskedForRunsOnceItBegins) {
  Generations generations(7);
  EXPECT_EQ(generations.ask(8, {.policy = "p"}), 1);
  EXPECT_FALSE(generations.is_settled());
  EXPECT_EQ(generations.current(), 7);
  EXPECT_EQ(generations.last(), 1);
  EXPECT_EQ(generations.last_plan(), 8);
  EXPECT_THAT(generations.possible(), ElementsAre(Pair(0, 7), Pair(1, 8)));
  const auto asked = generations.take(1);
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->decision.policy, "p");
  generations.begin(1, asked->plan);
  EXPECT_TRUE(generations.is_settled());
  EXPECT_EQ(generations.current(), 8);
  EXPECT_EQ(generations.plan_of(0), 7);
  EXPECT_EQ(generations.plan_of(2), std::nullopt);
  EXPECT_THAT(generations.possible(), ElementsAre(Pair(1, 8)));
  EXPECT_FALSE(generations.take(1));
}

TEST(Generations, AChangeThatIsRefusedLeavesWhatRan) {
  Generations generations(7);
  generations.ask(8, {});
  EXPECT_TRUE(generations.take(1));
  EXPECT_EQ(generations.last_plan(), 7);
  EXPECT_EQ(generations.ask(9, {}), 2);
}

// The first of two requested changes began, unreported.
TEST(Generations, AllMayStandWhereNobodySaidThatTheyAre) {
  Generations generations(7);
  generations.ask(8, {});
  generations.ask(9, {});
  generations.fall_back(1);
  EXPECT_TRUE(generations.is_settled());
  EXPECT_EQ(generations.running(), 1);
  EXPECT_EQ(generations.running_plan(), 8);
  EXPECT_EQ(generations.current(), 7) << "as was said last";
  EXPECT_EQ(generations.ask(9, {}), 3);
  generations.fall_back(0);
  EXPECT_EQ(generations.running_plan(), 7);
}

TEST(Generations, AnotherLeadsGoOn) {
  Generations generations(0);
  generations.take_over({{4, 1}, {6, 2}});
  EXPECT_EQ(generations.current(), 1);
  EXPECT_EQ(generations.running(), 4);
  EXPECT_EQ(generations.plan_of(0), std::nullopt);
  generations.fall_back(6);
  EXPECT_EQ(generations.running_plan(), 2);
  EXPECT_EQ(generations.ask(3, {}), 7);
}

}  // namespace
}  // namespace motley::job
