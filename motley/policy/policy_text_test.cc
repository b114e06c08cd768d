#include <gtest/gtest.h>

#include "motley/base/json.h"
#include "motley/policy/action.h"
#include "motley/policy/decision.h"
#include "motley/policy/observation.h"

namespace motley::policy {
namespace {

const std::vector<Observation> kSeen = {
    StepSeen{.step = 7,
             .at = Seconds(1.5),
             .took = Seconds(0.25),
             .plan = 2,
             .global_batch = 40,
             .devices = {{"a:0", 24, {0.1, 0.2}, 0.2, {0.01, 0.02}}, {"b:0", 16, {}, 0.24, {}}},
             .exchange = {0.03, 0.04},
             .blocking = 0.001},
    NoiseSeen{.step = 7, .squared_norm = 2.5, .pieces = {{24, 3.5}, {16, 4.25}}},
    RefusalSeen{2, 0, "rank 1: out of memory"},
    NoticeSeen{"b:0", Seconds(2), Seconds(120)},
    LossSeen{"b:0", Seconds(3)},
    LossSeen{"b:0", Seconds(3), true},
    ArrivalSeen{"c:0", Seconds(4)},
    PriceSeen{"v100", "west", Seconds(5), 0.74, false},
    MemorySeen{"b:0", 12},
};

const std::vector<Action> kActions = {
    UsePlan{1},
    UseSplit{{{"a:0", 30}, {"b:0", 10}}},
    Save{},
    UseBatch{{{"a:0", 60}, {"b:0", 20}}, 1.41},
    Tell{"b:0", "slower than it should be"},
    Rent{"v100", "west", true, -2},
    MeasureNoise{16},
};

TEST(PolicyText, ObservationsAndActionsSurviveTheirTexts) {
  for (const Observation& seen : kSeen)
    EXPECT_EQ(observation_from_json(observation_to_json(seen), "x").value(), seen);
  for (const Action& action : kActions)
    EXPECT_EQ(action_from_json(action_to_json(action), "x").value(), action);
}

TEST(PolicyText, DecisionsSurviveTheirTexts) {
  for (const Action& action : kActions) {
    const Decision decision{
        .policy = "motley",
        .seen_step = 9,
        .at = Seconds(1.25),
        .choice = {action, Seconds(0.2), "it is the fastest", {{"as it is", Seconds(40), 0.5}}},
        .begins = 11,
        .came = Seconds(0.21),
        .before = std::nullopt,
        .plan = "{}"};
    EXPECT_EQ(parse_decision(print_decision(decision), "x").value(), decision);
  }
}

std::string fault(std::string_view text) {
  return action_from_json(parse_json(text, "d.jsonl").value(), "d.jsonl").error().message;
}

TEST(PolicyText, SaysWhatIsWrong) {
  EXPECT_EQ(fault(R"({"do": "dance"})"),
            "d.jsonl: key 'do': found 'dance', wanted one of plan, split, batch, save, rent, tell, "
            "noise");
  EXPECT_EQ(fault(R"({"do": "split", "shares": 3})"), "d.jsonl: key 'shares': wanted a list");
  const auto seen = observation_from_json(
      parse_json(R"({"seen": "step", "step": 1, "at": 1, "took": 1, "plan": 0, "global_batch": 4,
                     "devices": [], "exchange": ["x"], "blocking": 0})",
                 "o")
          .value(),
      "o");
  EXPECT_EQ(seen.error().message, "o: key 'exchange': wanted numbers");
}

}  // namespace
}  // namespace motley::policy
