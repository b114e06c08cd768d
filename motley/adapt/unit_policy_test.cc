#include "motley/adapt/unit_policy.h"

#include <gmock/gmock.h>

#include "motley/adapt/policies.h"
#include "motley/base/json.h"

namespace motley::adapt {
namespace {

using ::testing::ElementsAre;

std::unique_ptr<policy::Policy> policy_in(std::int64_t micro_batches) {
  const SplitSetting setting{{{.device = "d0"}, {.device = "d1"}}};
  return std::make_unique<UnitPolicy>(make_split_policy("motley", setting).value(), micro_batches);
}

policy::StepSeen step_in_four(std::int64_t step) {
  policy::StepSeen seen{.step = step, .global_batch = 64, .exchange = {0.001}};
  seen.devices = {{"d0", 32, {0.1}, 0.1, {0}}, {"d1", 32, {0.3}, 0.3, {0}}};
  return seen;
}

// 8 of 16 samples take three times as long on one device: 12 and 4 per micro-batch.
TEST(UnitPolicy, AsksForMultiples) {
  const auto policy = policy_in(4);
  EXPECT_EQ(policy->name(), "motley");
  (void)policy->observe(policy::MemorySeen{"d0", 43});  // 10 of each
  std::vector<policy::Choice> choices;
  for (std::int64_t step = 1; step < 9 && choices.empty(); ++step)
    choices = policy->observe(step_in_four(step));
  ASSERT_EQ(choices.size(), 1u);
  EXPECT_THAT(std::get<policy::UseSplit>(choices[0].action).shares,
              ElementsAre(policy::Share{"d0", 40}, policy::Share{"d1", 24}));
}

TEST(UnitPolicy, IsRestoredWithAsManyMicroBatches) {
  const auto policy = policy_in(4), other = policy_in(4), unlike = policy_in(2);
  (void)policy->observe(step_in_four(1));
  ASSERT_TRUE(other->restore(parse_json(policy->state().dump(), "x").value(), "x"));
  EXPECT_EQ(other->state(), policy->state());
  EXPECT_EQ(unlike->restore(policy->state(), "x").error().message,
            "x: it is of steps in 4 micro-batches, this training's have 2");
}

}  // namespace
}  // namespace motley::adapt
