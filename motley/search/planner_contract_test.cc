// The contract of all planners (plan/planner.h) on models with operator costs, for splits and
// shardings. planners_test.cc tests splits over tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "motley/search/planners.h"
#include "motley/testing/golden.h"
#include "motley/testing/invented_profile.h"
#include "motley/testing/rounds.h"
#include "motley/testing/test_name.h"
#include "peers/spaces/restricted_planner.h"

namespace motley::search {
namespace {

using plan::PlanOutcome;
using plan::Reason;

constexpr std::int64_t kContractSamples = 12;

std::vector<std::string> all_planners() {
  std::vector<std::string> names;
  for (const NamedPlanner& each : peers::planners()) names.emplace_back(each.name);
  return names;
}

/// Parameters: planner, devices (three_devices).
class Contract : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  const std::string& name() const { return std::get<0>(GetParam()); }
  InventedProfile invented(const std::string& model, const std::string& memory = "") const {
    return {synth::read_graph(model), three_devices(std::get<1>(GetParam()), memory),
            kContractSamples};
  }
  PlanOutcome run(const InventedProfile& invented, const std::string& planner) const {
    plan::Problem problem = invented.problem();
    problem.manual = {7, 5, 0};
    problem.seed = 3;
    const auto made = make_planner(planner, invented.evaluator().inputs(), peers::planners());
    auto outcome = (*made)->plan(problem);
    EXPECT_TRUE(outcome) << outcome.error().message;
    return outcome ? *std::move(outcome) : PlanOutcome{};
  }
};

TEST_P(Contract, PlansAreValidPricedAndTheSameEachTime) {
  const char* const models[] = {"mlp", "gpt"};
  for (std::size_t m = 0; m < testing::rounds(1, 2); ++m) {
    const char* model = models[m];
    SCOPED_TRACE(model);
    const InventedProfile invented = this->invented(model);
    const PlanOutcome outcome = run(invented, name()), again = run(invented, name());
    EXPECT_EQ(outcome.plan, again.plan);
    EXPECT_EQ(outcome.why, again.why);
    EXPECT_EQ(outcome.planner, name());
    ASSERT_TRUE(outcome.plan);
    EXPECT_TRUE(plan::verify_plan(*outcome.plan, invented.model().hash, invented.cluster()));
    const auto price = invented.evaluator().price(*outcome.plan);
    ASSERT_TRUE(price) << price.error().message;
    EXPECT_EQ(outcome.predicted_step, price->step);
    EXPECT_LE(outcome.lower_bound, outcome.predicted_step);
    const std::vector<plan::Member> members = plan::members(*outcome.plan);
    ASSERT_EQ(outcome.peak.size(), members.size());
    for (std::size_t rank = 0; rank < members.size(); ++rank) {
      EXPECT_EQ(outcome.peak[rank].first, members[rank].device);
      EXPECT_EQ(outcome.peak[rank].second, price->peaks[rank]);
    }
    EXPECT_EQ(outcome.idle.size() + members.size(), 3u);
    // The portfolio is never worse than any planner.
    EXPECT_LE(run(invented, "auto").predicted_step, outcome.predicted_step);
  }
}

TEST_P(Contract, SaysWhatIsMissingWhereNothingFits) {
  const InventedProfile invented = this->invented("mlp", "1KiB");
  const PlanOutcome outcome = run(invented, name());
  EXPECT_FALSE(outcome.plan);
  EXPECT_EQ(outcome.reason, Reason::kInfeasible);
  EXPECT_THAT(outcome.why, ::testing::Contains(::testing::HasSubstr("has 1 KiB")));
}

TEST_P(Contract, WhatIsToBeLeftFreeIsNoRoom) {
  cluster::Cluster cluster = three_devices(std::get<1>(GetParam()));
  const auto with = [&](Bytes memory, Bytes spare) {
    for (cluster::Device& device : cluster.devices) {
      device.memory = memory;
      device.spare = spare;
    }
    return run(InventedProfile(synth::read_graph("mlp"), cluster, kContractSamples), name());
  };
  Bytes most;  // the best plan's largest peak; the plan does not fit in a byte less
  for (const auto& [device, bytes] : with(Bytes(std::int64_t{1} << 40), Bytes(0)).peak)
    most = std::max(most, bytes);
  ASSERT_GT(most.value, 0);
  const Bytes room = most - Bytes(1);
  const PlanOutcome less = with(room, Bytes(0)),
                    spared = with(room + Bytes(1 << 20), Bytes(1 << 20));
  EXPECT_EQ(spared.reason, less.reason);
  EXPECT_EQ(spared.peak, less.peak);
  EXPECT_EQ(spared.predicted_step, less.predicted_step);
  EXPECT_EQ(spared.why, less.why);
  for (const auto& [device, bytes] : spared.peak) EXPECT_LE(bytes, room);
}

INSTANTIATE_TEST_SUITE_P(All, Contract,
                         ::testing::Combine(::testing::ValuesIn(all_planners()),
                                            ::testing::Values("emulated", "far", "kinds")),
                         [](const auto& info) {
                           return testing::test_name(std::get<0>(info.param)) + "_" +
                                  std::get<1>(info.param);
                         });

}  // namespace
}  // namespace motley::search
