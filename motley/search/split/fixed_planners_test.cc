#include "motley/search/split/fixed_planners.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "motley/testing/toy_problem.h"

namespace motley::search {
namespace {

using ::testing::ElementsAre;

template <typename Fixed>
plan::PlanOutcome outcome_of(const ToyProblem& toy) {
  auto outcome = Fixed(toy.inputs()).plan(toy.problem);
  EXPECT_TRUE(outcome) << outcome.error().message;
  return *std::move(outcome);
}

std::vector<std::int64_t> given_by(const plan::PlanOutcome& outcome, const ToyProblem& toy) {
  std::vector<std::int64_t> given(toy.cluster->devices.size(), 0);
  EXPECT_TRUE(outcome.plan);
  if (outcome.plan)
    for (const plan::Member& member : plan::members(*outcome.plan))
      given[member.device.index()] = member.samples;
  return given;
}

ToyProblem devices_of(const std::vector<TableEvaluator::Device>& devices, std::int64_t batch) {
  ToyProblem toy;
  toy.group = no_exchange;
  for (const TableEvaluator::Device& device : devices) toy.add_device(device);
  toy.finish(batch);
  return toy;
}

TEST(FixedPlanners, EqualGivesTheFirstOneMoreEach) {
  const ToyProblem toy = devices_of({linear_device(1), linear_device(9), linear_device(1)}, 8);
  EXPECT_THAT(given_by(outcome_of<EqualPlanner>(toy), toy), ElementsAre(3, 3, 2));
}

// At the equal share of 4 both take 12 s: 8 + 4 * 1 and 4 * 3. At one sample: 9 s and 3 s.
TEST(FixedPlanners, ProportionalAsksForTheSpeedAtTheEqualShare) {
  const ToyProblem toy = devices_of({linear_device(1, 8), linear_device(3)}, 8);
  EXPECT_THAT(given_by(outcome_of<ProportionalPlanner>(toy), toy), ElementsAre(4, 4));
}

// 9.9 and 0.1 of 10 samples.
TEST(FixedPlanners, ProportionalLeavesOutWhoGetsNothing) {
  const ToyProblem toy = devices_of({linear_device(1), linear_device(99)}, 10);
  const plan::PlanOutcome outcome = outcome_of<ProportionalPlanner>(toy);
  EXPECT_THAT(given_by(outcome, toy), ElementsAre(10, 0));
  EXPECT_THAT(outcome.idle, ElementsAre(DeviceId(1)));
}

TEST(FixedPlanners, ProportionalOfFewSamplesAsksForTheSpeedAtOne) {
  const ToyProblem toy =
      devices_of({linear_device(1), linear_device(1), linear_device(9), linear_device(9)}, 2);
  EXPECT_THAT(given_by(outcome_of<ProportionalPlanner>(toy), toy), ElementsAre(1, 1, 0, 0));
}

ToyProblem with_rooms(const std::vector<std::int64_t>& rooms, std::int64_t batch) {
  ToyProblem toy;
  toy.group = no_exchange;
  for (const std::int64_t room : rooms) {
    TableEvaluator::Device device = linear_device(1);
    device.per_sample = Bytes(1);
    toy.add_device(device, Bytes(room));
  }
  toy.finish(batch);
  return toy;
}

std::set<std::vector<std::int64_t>> drawn_splits(ToyProblem toy) {
  std::set<std::vector<std::int64_t>> seen;
  for (toy.problem.seed = 0; toy.problem.seed < 400; ++toy.problem.seed)
    seen.insert(given_by(outcome_of<RandomPlanner>(toy), toy));
  return seen;
}

// Room for 3, 5 and 2 samples, 6 samples, at least two each: exactly the allowed splits occur.
TEST(FixedPlanners, RandomDrawsEverySplitThatFits) {
  ToyProblem toy = with_rooms({3, 5, 2}, 6);
  toy.problem.min_samples = 2;
  EXPECT_EQ(drawn_splits(std::move(toy)),
            (std::set<std::vector<std::int64_t>>{{2, 4, 0}, {3, 3, 0}, {0, 4, 2}, {2, 2, 2}}));
}

// Room for all on the first alone, or for 3 on each of two others, which just suffices.
TEST(FixedPlanners, RandomMayDrawOneDevice) {
  const auto seen = drawn_splits(with_rooms({6, 3, 3}, 6));
  EXPECT_TRUE(seen.contains({6, 0, 0}));
  EXPECT_TRUE(seen.contains({0, 3, 3}));
  for (const std::vector<std::int64_t>& split : seen) EXPECT_EQ(split[0] + split[1] + split[2], 6);
}

}  // namespace
}  // namespace motley::search
