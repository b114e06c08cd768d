#include "motley/simulate/conditions_file.h"

#include <gtest/gtest.h>

#include <cmath>

namespace motley::simulate {
namespace {

std::string message(const std::string& text) {
  const auto parsed = parse_conditions(text, "c.json");
  return parsed ? "" : parsed.error().message;
}

TEST(ConditionsFile, ReadsAllOfIt) {
  const auto parsed = parse_conditions(
      R"({"schema": "motley.conditions/1", "seed": 7,
          "jitter": [{"device": "a:0", "per_step": 0.1}],
          "slow_downs": [{"device": "b:0", "from_s": 1, "until_s": 2, "factor": 3}],
          "absences": [{"device": "c:0", "from_s": 4}],
          "faults": [{"device": "a:0", "step": 3, "instruction": 17},
                     {"device": "b:0", "step": 0, "instruction": 0, "hangs": true,
                      "in_move": true}],
          "recovery": {"detection_s": 5, "restart_s": 6, "checkpoint_every": 10}})",
      "c.json");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->seed, 7U);
  EXPECT_EQ(parsed->jitter.at("a:0"), (Jitter{0, 0.1}));
  ASSERT_EQ(parsed->slow_downs.size(), 1U);
  EXPECT_EQ(parsed->slow_downs[0], (SlowDown{"b:0", Seconds(1), Seconds(2), 3}));
  ASSERT_EQ(parsed->absences.size(), 1U);
  EXPECT_EQ(parsed->absences[0].device, "c:0");
  EXPECT_TRUE(std::isinf(parsed->absences[0].until.value));
  ASSERT_EQ(parsed->faults.size(), 2U);
  EXPECT_EQ(parsed->faults[0].device, "a:0");
  EXPECT_EQ(parsed->faults[0].step, 3);
  EXPECT_EQ(parsed->faults[0].instruction, 17);
  EXPECT_FALSE(parsed->faults[0].hangs);
  EXPECT_FALSE(parsed->faults[0].in_move);
  EXPECT_EQ(parsed->faults[1].device, "b:0");
  EXPECT_TRUE(parsed->faults[1].hangs);
  EXPECT_TRUE(parsed->faults[1].in_move);
  EXPECT_EQ(parsed->recovery, (Recovery{Seconds(5), Seconds(6), 10}));
}

TEST(ConditionsFile, NamesWhatIsWrong) {
  EXPECT_EQ(message(R"({"schema": "x"})"), "c.json: found schema 'x', wanted motley.conditions/1");
  EXPECT_EQ(message(R"({"schema": "motley.conditions/1", "jitter": {}})"),
            "c.json: key 'jitter': wanted a list");
  EXPECT_NE(message(R"({"schema": "motley.conditions/1", "jiter": []})").find("'jiter'"),
            std::string::npos);
  EXPECT_NE(message(R"({"schema": "motley.conditions/1", "absences": [{"device": "a:0"}]})")
                .find("c.json: absences[0]: "),
            std::string::npos);
  const auto fault = [](const std::string& text) {
    return message(R"({"schema": "motley.conditions/1", "faults": [)" + text + "]}");
  };
  EXPECT_EQ(fault(R"({"device": "a:0", "step": 1})"),
            "c.json: faults[0]: key 'instruction' is missing");
  EXPECT_EQ(fault(R"({"step": 1, "instruction": 2})"),
            "c.json: faults[0]: key 'device' is missing");
  EXPECT_EQ(fault(R"({"device": "a:0", "step": 1, "instruction": 2, "hangs": 1})"),
            "c.json: faults[0]: key 'hangs': found an integer, wanted a boolean");
  EXPECT_NE(fault(R"({"device": "a:0", "step": 1, "instruction": 2, "hang": true})").find("'hang'"),
            std::string::npos);
}

}  // namespace
}  // namespace motley::simulate
