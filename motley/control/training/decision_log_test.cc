#include "motley/control/training/decision_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/base/file.h"
#include "motley/testing/small_inputs.h"

namespace motley::control {
namespace {

class DecisionLogTest : public ::testing::Test {
 protected:
  static policy::Decision use_plan(int plan) {
    return {.policy = "trials", .choice = {policy::UsePlan{plan}, std::nullopt, "it is next"}};
  }
  std::vector<policy::Decision> written() const { return read_decisions(path_).value(); }

  TemporaryDirectory directory_;
  std::string path_ = directory_.file("decisions.jsonl");
};

TEST_F(DecisionLogTest, ADecisionHasTheMedianOfItsStepsButTheFirst) {
  DecisionLog log(path_);
  ASSERT_TRUE(log.open(DecisionLog::From::kStart));
  ASSERT_TRUE(log.keep_plan(use_plan(0)));
  EXPECT_EQ(written().at(0).came, std::nullopt);
  log.on_step(9);
  EXPECT_EQ(log.usual_step(), std::nullopt);
  for (const double seconds : {1.0, 3.0, 2.0}) log.on_step(seconds);
  EXPECT_EQ(log.usual_step(), Seconds(2));
  ASSERT_TRUE(log.keep_plan(use_plan(1)));
  log.begin_plan();
  EXPECT_EQ(log.steps(), 0u);
  ASSERT_EQ(written().size(), 2u);
  EXPECT_EQ(written()[0].came, Seconds(2));
  EXPECT_EQ(written()[1].before, Seconds(2));
  for (const double seconds : {9.0, 1.0}) log.on_step(seconds);
  ASSERT_TRUE(log.end());
  EXPECT_EQ(written()[1].came, Seconds(1));
}

TEST_F(DecisionLogTest, WhatBeginsNoPlanIsKeptBesideTheLastPlan) {
  DecisionLog log(path_);
  ASSERT_TRUE(log.open(DecisionLog::From::kStart));
  ASSERT_TRUE(log.keep_plan(use_plan(0)));
  const policy::Choice tell{policy::Tell{"a:0", "is slow"}, std::nullopt, "it was measured"};
  ASSERT_TRUE(log.keep({.policy = "split", .choice = tell}));
  for (const double seconds : {9.0, 4.0}) log.on_step(seconds);
  ASSERT_TRUE(log.end());
  ASSERT_EQ(written().size(), 2u);
  EXPECT_EQ(written()[0].came, Seconds(4));
  EXPECT_EQ(written()[1].choice, tell);
  EXPECT_EQ(written()[1].came, std::nullopt);
}

TEST_F(DecisionLogTest, AResumedRunContinuesBehindTheLastWholeLine) {
  const std::string line = policy::print_decision(use_plan(0)) + "\n";
  ASSERT_TRUE(write_file_atomic(path_, line + R"({"policy": "tri)"));
  DecisionLog log(path_);
  ASSERT_TRUE(log.open(DecisionLog::From::kBefore));
  ASSERT_TRUE(log.keep_plan(use_plan(1)));
  ASSERT_EQ(written().size(), 2u);
  EXPECT_EQ(written()[0].choice, use_plan(0).choice);
  EXPECT_EQ(written()[1].choice, use_plan(1).choice);

  ASSERT_TRUE(log.open(DecisionLog::From::kStart));
  EXPECT_FALSE(read_file(path_).has_value());
}

TEST_F(DecisionLogTest, ALogThatCannotBeWrittenIsAnError) {
  DecisionLog log(directory_.file("missing/decisions.jsonl"));
  ASSERT_TRUE(log.open(DecisionLog::From::kStart));
  EXPECT_EQ(log.keep_plan(use_plan(0)).error().code, "run.directory");
}

}  // namespace
}  // namespace motley::control
