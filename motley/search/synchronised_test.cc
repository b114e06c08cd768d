#include "motley/search/synchronised.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/search/planners.h"
#include "motley/testing/golden.h"
#include "motley/testing/invented_profile.h"

namespace motley::search {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class SynchronisedTest : public ::testing::Test {
 protected:
  Result<plan::PlanOutcome> plan(const Sync& sync, const char* planner = "equal",
                                 const std::string& memory = "") {
    invented_ = std::make_unique<InventedProfile>(synth::read_graph("mlp"),
                                                  three_devices("far", memory), 12);
    const PlannerInputs inputs = invented_->evaluator().inputs();
    const Synchronised planning(inputs, make_planner(planner, inputs).value(), sync);
    EXPECT_EQ(planning.name(), planner);
    return planning.plan(invented_->problem());
  }
  std::string refused(const Sync& sync, const char* planner = "equal") {
    const auto outcome = plan(sync, planner);
    return outcome ? "" : outcome.error().message;
  }

  std::unique_ptr<InventedProfile> invented_;
};

TEST_F(SynchronisedTest, AsksForOwnersOrAServer) {
  const auto free = plan({Sync::Kind::kAllReduce});
  ASSERT_TRUE(free && free->plan);
  EXPECT_TRUE(free->plan->owners.empty());
  EXPECT_GT(free->lower_bound.value, 0);
  const auto owners = plan({Sync::Kind::kOwners});
  ASSERT_TRUE(owners && owners->plan);
  ASSERT_EQ(owners->plan->owners.size(), 1U);
  EXPECT_THAT(owners->plan->owners[0].parameters, ElementsAre("*"));
  EXPECT_EQ(owners->plan->owners[0].shares.size(), 3U);
  EXPECT_EQ(owners->predicted_step, invented_->evaluator().price(*owners->plan)->step);
  EXPECT_EQ(owners->lower_bound, Seconds(0));
  EXPECT_THAT(owners->why, Contains(HasSubstr("gradients are summed by owners ")));
  const auto server = plan({Sync::Kind::kServer, "b:0"});
  ASSERT_TRUE(server && server->plan);
  EXPECT_THAT(server->plan->owners[0].shares, ElementsAre(Pair(DeviceId(1), 1.0)));
  EXPECT_NE(server->predicted_step, owners->predicted_step);
  EXPECT_TRUE(plan::verify_plan(*server->plan, invented_->model().hash, invented_->cluster()));
}

// Cards of 1 Gbit/s and twice 10 Mbit/s: the first device owns all, as new rows go back beside the
// sums of later buckets, and that takes less than the planner's all-reduces; with equal cards not.
TEST_F(SynchronisedTest, OwnersAreThoseThatAreFaster) {
  const auto found = [](const char* slow, Sync::Kind kind) {
    std::string text = "schema = \"motley.cluster/1\"\nname = \"cards\"\n";
    for (const char* node : {"a", "b", "c"})
      text += fmt::format(
          "[[node]]\nname = \"{}\"\nbandwidth = \"{}\"\ndevice = [ {{ kind = \"v100-16g\" }} ]\n",
          node, *node == 'a' ? "1Gbps" : slow);
    text += "[[link]]\nall = true\nbandwidth = \"10Gbps\"\nlatency = \"1us\"\n";
    InventedProfile invented(synth::read_graph("gpt"), *cluster::parse_cluster(text, "cards"), 12);
    const PlannerInputs inputs = invented.evaluator().inputs();
    plan::Problem problem = invented.problem();
    problem.bucket_bytes = Bytes(128);
    const auto outcome =
        Synchronised(inputs, make_planner("equal", inputs).value(), {kind}).plan(problem);
    EXPECT_TRUE(outcome) << outcome.error().message;
    return *outcome;
  };
  using Kind = Sync::Kind;
  const plan::PlanOutcome uneven = found("10Mbps", Kind::kOwners);
  ASSERT_THAT(uneven.plan->owners, ::testing::SizeIs(1));
  EXPECT_THAT(uneven.plan->owners[0].shares, ElementsAre(Pair(DeviceId(0), 1.0)));
  EXPECT_EQ(uneven.lower_bound, Seconds(0));
  EXPECT_THAT(uneven.why, Contains(HasSubstr(
                              "gradients are summed by owners by what links carry, as asked for; "
                              "a step takes ")));
  EXPECT_LT(uneven.predicted_step, found("10Mbps", Kind::kAllReduce).predicted_step);
  const plan::PlanOutcome even = found("1Gbps", Kind::kOwners);
  EXPECT_THAT(even.plan->owners[0].shares, ::testing::SizeIs(3));
  EXPECT_GT(even.predicted_step, found("1Gbps", Kind::kAllReduce).predicted_step);
}

TEST_F(SynchronisedTest, RefusesWhatNoPlanHas) {
  EXPECT_THAT(refused({Sync::Kind::kServer, "b:1"}), HasSubstr("b:1"));
  EXPECT_THAT(refused({Sync::Kind::kOwners}, "hap"), HasSubstr("one replica"));
}

TEST_F(SynchronisedTest, APlanThatDoesNotFitThenIsInfeasible) {
  const auto fits = plan({Sync::Kind::kAllReduce});
  ASSERT_TRUE(fits && fits->plan);
  const Bytes most = std::max_element(fits->peak.begin(), fits->peak.end(), [](auto& a, auto& b) {
                       return a.second < b.second;
                     })->second;
  const auto server = plan({Sync::Kind::kServer, "a:0"}, "equal", std::to_string(most.value) + "B");
  ASSERT_TRUE(server) << server.error().message;
  EXPECT_FALSE(server->plan);
  EXPECT_EQ(server->reason, plan::Reason::kInfeasible);
  EXPECT_THAT(server->why, Contains(HasSubstr("a:0 needs")));
}

}  // namespace
}  // namespace motley::search
