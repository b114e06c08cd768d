#include "motley/c/motley.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "motley/base/json.h"
#include "motley/cluster/host_limits.h"

namespace motley {
namespace {

Json take(char* text) {
  const Json json = *parse_json(text, "answer");
  motley_free(text);
  return json;
}

constexpr const char* kTwo =
    R"({"policy": "motley", "devices": [{"device": "a", "least": 1, "most": 64},
        {"device": "b", "least": 1, "most": 64}]})";

std::string step_of(int step, int a, int b, double end_a, double end_b) {
  const auto device = [](const char* name, int samples, double end) {
    return Json{{"device", name},
                {"samples", samples},
                {"ready", Json::array()},
                {"end", end},
                {"update", Json::array()}};
  };
  return Json{{"seen", "step"},
              {"step", step},
              {"at", 0.2 * step},
              {"took", std::max(end_a, end_b)},
              {"plan", 0},
              {"global_batch", a + b},
              {"devices", {device("a", a, end_a), device("b", b, end_b)}},
              {"exchange", Json::array()},
              {"blocking", 0.0}}
      .dump();
}

// 48 samples are fastest as 32 and 16. The fixed part of a time shows with the second split.
TEST(CInterface, SplitsByTimes) {
  motley_policy* policy = nullptr;
  ASSERT_EQ(take(motley_make_split_policy(kTwo, &policy)), Json::object());
  int a = 24, b = 24;
  for (int step = 0; step < 12; ++step) {
    const Json answer =
        take(motley_observe(policy, step_of(step, a, b, 0.001 * a, 0.002 * b).c_str()));
    ASSERT_TRUE(answer.contains("choices")) << answer;
    for (const Json& choice : answer["choices"]) {
      ASSERT_EQ(choice["action"]["do"], "split");
      a = choice["action"]["shares"][0]["samples"].get<int>();
      b = choice["action"]["shares"][1]["samples"].get<int>();
      EXPECT_GT(choice["expected_s"].get<double>(), 0);
      EXPECT_NE(choice["why"], "");
    }
  }
  EXPECT_EQ(a, 32);
  EXPECT_EQ(b, 16);
  motley_drop_policy(policy);
}

TEST(CInterface, SharesABatch) {
  const Json question = {{"batch", 10},
                         {"devices",
                          {{{"device", "a"}, {"least", 1}, {"most", 5}, {"weight", 8.0}},
                           {{"device", "b"}, {"least", 1}, {"most", 9}, {"weight", 3.0}},
                           {{"device", "c"}, {"least", 1}, {"most", 9}, {"weight", 1.0}}}}};
  // 8 : 3 : 1 of 10. a takes at most 5; the other 5 split 3 : 1, where c gets 1.25.
  EXPECT_EQ(take(motley_share_batch(question.dump().c_str()))["samples"], (Json{5, 4, 1}));
}

TEST(CInterface, KnowsTheHost) {
  const auto limits = cluster::find_host_limits(cluster::read_host_file);
  const Json told = take(motley_host_limits());
  EXPECT_EQ(told["cpu_quota"].is_null(), !limits.cpu_quota.has_value());
  EXPECT_EQ(told["memory"], limits.memory->value);
}

TEST(CInterface, SaysWhatIsWrong) {
  motley_policy* policy = nullptr;
  const auto message = [](char* text) { return take(text)["error"]["message"]; };
  EXPECT_EQ(
      message(motley_make_split_policy(
          R"({"policy": "motly", "devices": [{"device": "a", "least": 1, "most": 2}]})", &policy)),
      "unknown policy 'motly', wanted one of motley even, "
      "did you mean 'motley'?");
  EXPECT_EQ(
      message(motley_make_split_policy(
          R"({"policy": "motley", "devices": [{"device": "a", "least": 3, "most": 2}]})", &policy)),
      "setting: device 'a': wanted 0 <= least <= most <= 1099511627776 and a weight above 0");
  EXPECT_EQ(policy, nullptr);
  EXPECT_EQ(
      message(motley_share_batch(
          R"({"batch": 9, "devices": [{"device": "a", "least": 1, "most": 4, "weight": 1}]})")),
      "a batch of 9 samples: the devices take from 1 to 4 together");
  ASSERT_EQ(take(motley_make_split_policy(kTwo, &policy)), Json::object());
  EXPECT_EQ(take(motley_observe(policy, "{"))["error"]["code"], "json.parse");
  EXPECT_EQ(message(motley_observe(policy, R"({"seen": "stop"})")),
            "observation: key 'seen': found 'stop', wanted one of step, noise, refusal, notice, "
            "loss, arrival, price, memory");
  motley_drop_policy(policy);
}

}  // namespace
}  // namespace motley
