#include "motley/control/planning/chosen_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/base/file.h"
#include "motley/testing/small_question.h"

namespace motley::control {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class ChosenPlanTest : public SmallQuestionTest {
 protected:
  std::string write_plan() {
    PlanChoices manual = choices_;
    manual.manual = {5, 3};
    manual.prices.profiles = directory_.file("elsewhere.db");
    const auto chosen = choose_plan(question_, manual, outside_).value();
    const std::string path = directory_.file("plan.json");
    EXPECT_TRUE(
        write_file_atomic(path, plan::print_plan(chosen->planned.plan, chosen->inputs.cluster)));
    workers_.timed.clear();
    return path;
  }

  const PlanChoices choices_{.prices = {.profiles = directory_.file("profiles.db")},
                             .planner = "split"};
};

TEST_F(ChosenPlanTest, HasAllThatItWasMadeFrom) {
  const auto chosen = choose_plan(question_, choices_, outside_).value();
  ASSERT_TRUE(chosen->outcome);
  EXPECT_EQ(chosen->planned.plan, *chosen->outcome->plan);
  // The evaluator refers to the plan's inputs, not to those they were moved from.
  const auto price = chosen->priced.evaluator->price(chosen->planned.plan);
  ASSERT_TRUE(price) << price.error().message;
  EXPECT_EQ(price->step, chosen->outcome->predicted_step);
  const auto predicted = find_prediction(*chosen, 2, listener_).value();
  ASSERT_TRUE(predicted);
  EXPECT_EQ(predicted->seconds(), price->step);
}

TEST_F(ChosenPlanTest, ThatNothingFitsIsAnError) {
  std::string cluster = kTwoCpus;
  cluster.insert(cluster.find("kind"), "memory = \"1KiB\"\n  ");
  cluster.insert(cluster.rfind("kind"), "memory = \"1KiB\"\n  ");
  ASSERT_TRUE(write_file_atomic(question_.cluster, cluster));
  const auto chosen = choose_plan(question_, choices_, outside_);
  ASSERT_FALSE(chosen);
  EXPECT_EQ(chosen.error().kind, ErrorKind::kInfeasible);
}

TEST_F(ChosenPlanTest, AFileNeedsNoPricesWhereNoneAreAskedFor) {
  const std::string file = write_plan();
  question_.global_batch = 0;
  const auto chosen =
      open_plan(file, question_, choices_.prices, Prices::kIfThere, outside_).value();
  EXPECT_EQ(chosen->inputs.global_batch, 8);
  EXPECT_EQ(chosen->planned.program->devices[0].samples, 5);
  EXPECT_FALSE(chosen->outcome);
  EXPECT_FALSE(chosen->priced.costs);
  EXPECT_THAT(workers_.timed, IsEmpty());
  EXPECT_FALSE(find_prediction(*chosen, 1, listener_).value());
}

TEST_F(ChosenPlanTest, AFileIsPricedAsAsked) {
  const std::string file = write_plan();
  PriceChoices prices = choices_.prices;
  prices.missing = Missing::kRefuse;
  const auto refused = open_plan(file, question_, prices, Prices::kAsAsked, outside_);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().code, ::testing::EndsWith(".missing-profile"));
  EXPECT_THAT(workers_.timed, IsEmpty());
  const auto measured =
      open_plan(file, question_, choices_.prices, Prices::kAsAsked, outside_).value();
  EXPECT_THAT(workers_.timed, Not(IsEmpty()));
  EXPECT_TRUE(measured->priced.costs);
  EXPECT_THAT(find_prediction(*measured, 1, listener_).value()->devices, SizeIs(2));
}

}  // namespace
}  // namespace motley::control
