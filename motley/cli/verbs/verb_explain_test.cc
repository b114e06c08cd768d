#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "motley/testing/verb_calls.h"
#include "motley/testing/wide_cnn.h"

namespace motley::cli {
namespace {

using ::testing::HasSubstr;

/// A plan for GPUs that are not on this machine.
class ExplainVerbTest : public VerbTest {
 protected:
  ExplainVerbTest() {
    write("mlp.motley", testing::wide_cnn_text());
    write_cluster(priced(2, 8));
    plan({"--global-batch", "4096", "--planner", "split", "-o", plan_file_});
  }
  /// A machine with `count` GPUs at `price` an hour, beside another machine.
  static std::string priced(int count, int price) { return first(count, price) + kSecond; }
  static std::string first(int count, int price) {
    return fmt::format(
        "schema = \"motley.cluster/1\"\nname = \"rented\"\n[[node]]\nname = \"a\"\n"
        "price_per_hour = {}\n  [[node.device]]\n  kind = \"rtx4090\"\n  count = {}\n",
        price, count);
  }
  static constexpr const char* kSecond = R"([[node]]
name = "b"
price_per_hour = 1
  [[node.device]]
  kind = "t4"
[[link]]
all = true
bandwidth = "10Gbps"
latency = "50us"
)";
  Json plan(Words more) {
    more.insert(more.begin(), {"plan", "-m", model_, "-C", cluster_});
    return answer(more);
  }
  Words asking(Words more) const {
    more.insert(more.begin(), {"explain", plan_file_, "-m", model_, "-C", cluster_});
    return more;
  }
  std::string refused(const std::string& question) {
    return refusal(asking({"--what-if", question}));
  }

  const std::string plan_file_ = directory_.file("plan.json");
};

TEST_F(ExplainVerbTest, AnAnswerIsThePlanOfTheEditedFile) {
  const Json said = answer(asking({"--what-if", "+1 rtx4090@a", "--samples", "8192"}));
  ASSERT_EQ(said.at("what_if").size(), 1U);
  const Json& found = said.at("what_if").at(0);
  write_cluster(priced(3, 12));
  const Json again = plan({"--global-batch", "4096", "--samples", "8192"});
  EXPECT_EQ(found.at("step_s"), again.at("predicted_step_s"));
  EXPECT_EQ(found.at("plan").at("batch_split"), again.at("batch_split"));
  // Three GPUs at 4 an hour and one at 1.
  EXPECT_EQ(found.at("price_per_hour"), 13);
  EXPECT_EQ(again.at("price_per_hour"), 13);
  EXPECT_EQ(found.at("modelled"), Json::array());  // kinds that are not here are not measured
  EXPECT_EQ(found.at("cost_per_epoch"), again.at("cost_per_epoch"));
  EXPECT_NEAR(found.at("cost_per_epoch"), 2 * 13 / 3600.0 * found.at("step_s").get<double>(),
              1e-12);
}

TEST_F(ExplainVerbTest, SaysWhatBindsAndAsksTheObviousQuestions) {
  const Json said = answer(asking({"--planner", "split"}));
  EXPECT_EQ(said.at("binding").at(0).at("what"), "compute");
  for (std::size_t i = 1; i < said.at("binding").size(); ++i)
    EXPECT_LE(said.at("binding").at(i).at("share"), said.at("binding").at(i - 1).at("share"));
  std::set<std::string> asked;
  std::map<std::string, double> costs;
  double fastest = 1e300;
  for (const Json& each : said.at("what_if")) {
    asked.insert(each.at("what"));
    costs[each.at("what")] = each.at("cost_per_sample");
    EXPECT_LE(each.at("samples_per_s"), fastest);
    fastest = each.at("samples_per_s");
  }
  for (const char* question :
       {"+1 rtx4090@a", "+1 t4@b", "-a:0", "-b:0", "link all x2", "batch x2"})
    EXPECT_TRUE(asked.contains(question)) << question;
  ASSERT_EQ(said.at("by_cost").size(), asked.size());
  for (std::size_t i = 1; i < asked.size(); ++i)
    EXPECT_LE(costs.at(said.at("by_cost").at(i - 1)), costs.at(said.at("by_cost").at(i)));
  EXPECT_EQ(said.at("planned_again").at("step_s"), said.at("step_s"));
  EXPECT_FALSE(said.at("why").empty());
  ASSERT_EQ(call(asking({"--planner", "split", "--what-if", "batch x2"})), kDone);
  EXPECT_THAT(out_, HasSubstr("what binds\n  compute: "));
  EXPECT_THAT(out_, HasSubstr("9.00 an hour"));
  EXPECT_THAT(out_, HasSubstr("the cheapest sample first: "));
}

TEST_F(ExplainVerbTest, WhatDoesNotFitIsAnAnswer) {
  const Json said = answer(asking({"--planner", "equal", "--what-if", "memory b:0 64MiB"}));
  const Json& found = said.at("what_if").at(0);
  EXPECT_EQ(found.at("feasible"), false);
  EXPECT_EQ(found.at("step_s"), nullptr);
  EXPECT_THAT(found.at("why_not").get<std::string>(), HasSubstr("b:0 needs"));
}

TEST_F(ExplainVerbTest, QuestionsAboutNothingSayWhatThereIs) {
  EXPECT_EQ(refused("-c:0"),
            "2 '-c:0': the cluster has no 'c:0', did you mean 'a:0'?; devices: a:0, a:1, b:0; "
            "nodes: a, b; kinds: rtx4090, t4 [cluster.edit]");
  EXPECT_EQ(refused("link a-b x2"),
            "2 'link a-b x2': the cluster has no link 'a-b'; links: all [cluster.edit]");
  EXPECT_EQ(refused("+1 rtx409@a"),
            "2 unknown device kind 'rtx409', did you mean 'rtx4090'? [cluster.unknown-kind]");
  EXPECT_EQ(refused("batch none"),
            "2 'batch none': found 'none', wanted samples a step such as 256, or x2; now 4096 "
            "[explain.batch]");
}

TEST_F(ExplainVerbTest, TheLastDeviceStays) {
  write_cluster(first(1, 8));
  plan({"--global-batch", "64", "-o", plan_file_});
  EXPECT_EQ(refused("-a:0"), "2 '-a:0': no device would be left; devices: a:0 [cluster.edit]");
}

}  // namespace
}  // namespace motley::cli
