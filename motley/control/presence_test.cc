#include "motley/control/presence.h"

#include <gmock/gmock.h>

#include "motley/base/json.h"

namespace motley::control {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr trace::Nanoseconds kSecond = 1'000'000'000;

TEST(Presence, GoesFromEventToEvent) {
  // Of b two absences touch and are one; c never comes back.
  Presence presence({{"b", Seconds(2), Seconds(3)},
                     {"c", Seconds(1)},
                     {"b", Seconds(3), Seconds(5)},
                     {"b", Seconds(7), Seconds(8)}});
  ASSERT_NE(presence.next(), nullptr);
  EXPECT_EQ(*presence.next(), (Presence::Event{1 * kSecond, "c", Presence::What::kLoss}));
  EXPECT_EQ(*presence.find_loss({"b"}), (Presence::Event{2 * kSecond, "b", Presence::What::kLoss}));
  EXPECT_EQ(presence.find_loss({"a"}), nullptr);
  presence.take();
  EXPECT_THAT(presence.gone(), ElementsAre("c"));
  EXPECT_EQ(presence.take(), (Presence::Event{2 * kSecond, "b", Presence::What::kLoss}));
  EXPECT_THAT(presence.gone(), ElementsAre("b", "c"));
  EXPECT_EQ(presence.take(), (Presence::Event{5 * kSecond, "b", Presence::What::kArrival}));
  EXPECT_EQ(*presence.find_loss({"b", "c"}),
            (Presence::Event{7 * kSecond, "b", Presence::What::kLoss}));
  presence.take();
  presence.take();
  EXPECT_THAT(presence.gone(), ElementsAre("c"));
  EXPECT_EQ(presence.next(), nullptr);
}

/// Asks for a split at the losses and steps that it is told to.
class Asking : public policy::Policy {
 public:
  std::string_view name() const override { return "asking"; }
  std::vector<policy::Choice> observe(const policy::Observation& observation) override {
    const bool asks = (at_losses && std::holds_alternative<policy::LossSeen>(observation)) ||
                      (at_steps && std::holds_alternative<policy::StepSeen>(observation));
    if (!asks) return {};
    return {{policy::UseSplit{{{"a", 8}}}, std::nullopt, "own"}};
  }
  Json state() const override { return {{"losses", at_losses}}; }
  Result<void> restore(const Json& state, const std::string&) override {
    at_losses = state["losses"].get<bool>();
    return {};
  }
  bool at_losses = false, at_steps = false;
};

class PresencePolicyTest : public ::testing::Test {
 protected:
  std::unique_ptr<PresencePolicy> make(bool has_policy = true) {
    std::unique_ptr<Asking> asking;
    if (has_policy) asking = std::make_unique<Asking>();
    asking_ = asking.get();
    return std::make_unique<PresencePolicy>(
        std::move(asking),
        PresencePolicy::Surroundings{
            [](const std::string& device) { return device != "idle"; },
            [this](const std::set<std::string>& gone) -> Result<policy::Action> {
              if (!is_possible_) return usage_error("x", "too little memory");
              return policy::UseSplit{{{"c", static_cast<std::int64_t>(gone.size())}}};
            }});
  }
  static std::vector<std::string> whys(const std::vector<policy::Choice>& choices) {
    std::vector<std::string> whys;
    for (const policy::Choice& choice : choices) whys.push_back(choice.why);
    return whys;
  }
  static policy::StepSeen step(bool has_parts = true) {
    policy::StepSeen seen;
    if (has_parts) seen.devices.push_back({.device = "a", .samples = 8});
    return seen;
  }

  Asking* asking_ = nullptr;
  bool is_possible_ = true;
};

TEST_F(PresencePolicyTest, SplitsAgainWhereNobodyElseDoes) {
  const auto policy = make();
  EXPECT_EQ(policy->name(), "asking");
  const auto choices = policy->observe(policy::LossSeen{"b", Seconds(1)});
  ASSERT_THAT(choices, SizeIs(1));
  EXPECT_EQ(choices[0].why, "b is gone");
  EXPECT_EQ(std::get<policy::UseSplit>(choices[0].action).shares[0].samples, 1);  // one is gone
  EXPECT_THAT(policy->observe(policy::LossSeen{"idle", Seconds(1)}), IsEmpty());
  asking_->at_losses = true;
  EXPECT_THAT(whys(policy->observe(policy::LossSeen{"d", Seconds(1)})), ElementsAre("own"));
}

TEST_F(PresencePolicyTest, WhoIsThereAgainIsWaitedForByTheNextStepThatIsKnown) {
  const auto policy = make();
  policy->observe(policy::LossSeen{"b", Seconds(1)});
  EXPECT_THAT(policy->observe(policy::ArrivalSeen{"b", Seconds(2)}), IsEmpty());
  EXPECT_THAT(policy->observe(step(false)), IsEmpty());
  const auto choices = policy->observe(step());
  EXPECT_THAT(whys(choices), ElementsAre("b is there again"));
  EXPECT_EQ(std::get<policy::UseSplit>(choices[0].action).shares[0].samples, 0);
  EXPECT_THAT(policy->observe(step()), IsEmpty());
  // Where the policy asks itself, that counts.
  policy->observe(policy::ArrivalSeen{"b", Seconds(2)});
  asking_->at_steps = true;
  EXPECT_THAT(whys(policy->observe(step())), ElementsAre("own"));
  asking_->at_steps = false;
  EXPECT_THAT(policy->observe(step()), IsEmpty());
}

// Two of the plan's are gone: without a split with the one that is back no step would be done.
TEST_F(PresencePolicyTest, WhoIsBackIsNotWaitedForWhereNoStepComes) {
  const auto policy = make();
  is_possible_ = false;
  policy->observe(policy::LossSeen{"b", Seconds(1)});
  policy->observe(policy::LossSeen{"d", Seconds(1)});
  is_possible_ = true;
  EXPECT_THAT(whys(policy->observe(policy::ArrivalSeen{"b", Seconds(2)})),
              ElementsAre("b is there again"));
}

TEST_F(PresencePolicyTest, ANoticeIsAsGoodAsALoss) {
  const auto policy = make();
  EXPECT_THAT(whys(policy->observe(policy::NoticeSeen{"b", Seconds(1), Seconds(30)})),
              ElementsAre("b will be gone"));
  EXPECT_THAT(policy->observe(policy::NoticeSeen{"idle", Seconds(1), Seconds(30)}), IsEmpty());
}

TEST_F(PresencePolicyTest, NobodyIsAPolicyThatAsksForNothing) {
  const auto policy = make(false);
  EXPECT_EQ(policy->name(), "none");
  EXPECT_THAT(policy->observe(step()), IsEmpty());
  EXPECT_THAT(whys(policy->observe(policy::LossSeen{"b", Seconds(1)})), ElementsAre("b is gone"));
}

TEST_F(PresencePolicyTest, ThatNoSplitIsPossibleIsSaid) {
  const auto policy = make();
  is_possible_ = false;
  const auto choices = policy->observe(policy::LossSeen{"b", Seconds(1)});
  ASSERT_THAT(choices, SizeIs(1));
  EXPECT_EQ(std::get<policy::Tell>(choices[0].action).text,
            "is gone, and no other split is possible: too little memory");
}

TEST_F(PresencePolicyTest, RestoredChoosesAsTheOriginal) {
  const auto policy = make();
  policy->observe(policy::LossSeen{"b", Seconds(1)});
  policy->observe(policy::LossSeen{"c", Seconds(1)});
  policy->observe(policy::ArrivalSeen{"c", Seconds(2)});
  asking_->at_losses = true;
  const std::string text = policy->state().dump();
  const auto other = make();
  ASSERT_TRUE(other->restore(parse_json(text, "x").value(), "x"));
  EXPECT_EQ(other->observe(step()), policy->observe(step()));
  EXPECT_TRUE(asking_->at_losses);
  const auto refused = other->restore(parse_json("{\"schema\": \"z\"}", "x").value(), "x");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "x: found 'z', wanted 'motley.presence/1'");
}

}  // namespace
}  // namespace motley::control
