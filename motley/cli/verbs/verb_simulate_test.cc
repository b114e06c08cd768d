#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "motley/base/text.h"
#include "motley/testing/verb_calls.h"
#include "motley/testing/wide_cnn.h"
#include "motley/testing/wide_mlp.h"

namespace motley::cli {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

std::string three_kinds(const std::string& of_b = "", const std::string& of_c = "") {
  return fmt::format(R"(schema = "motley.cluster/1"
name = "kinds"
[[node]]
name = "a"
host = "h1"
[[node.device]]
kind = "a100-40g"
[[node]]
name = "b"
host = "h2"
{}
[[node.device]]
kind = "v100-16g"
[[node]]
name = "c"
host = "h3"
{}
[[node.device]]
kind = "t4"
[[link]]
all = true
bandwidth = "10Gbps"
latency = "50us"
)",
                     of_b, of_c);
}

std::vector<Json> that_do(const Json& rehearsed, const std::string& what) {
  std::vector<Json> found;
  for (const Json& each : rehearsed.at("decisions"))
    if (each.at("action").at("do") == what) found.push_back(each);
  return found;
}

std::map<std::string, std::int64_t> shares_of(const Json& decision) {
  std::map<std::string, std::int64_t> shares;
  for (const Json& share : decision.at("action").at("shares"))
    shares[share.at("device")] = share.at("samples");
  return shares;
}

class SimulateVerbTest : public VerbTest {
 protected:
  struct Training {
    std::int64_t batch = 100000, steps = 120;
    std::string planner = "split";
    std::string conditions;
  };

  SimulateVerbTest() {
    write("mlp.motley", testing::wide_cnn_text());
    write_cluster(three_kinds());
  }
  Words asking(const Training& training, const Words& more) const {
    Words words = {"simulate",
                   "-m",
                   model_,
                   "-C",
                   cluster_,
                   "--global-batch",
                   std::to_string(training.batch),
                   "--planner",
                   training.planner,
                   "--profile",
                   "never",
                   "--steps",
                   std::to_string(training.steps)};
    words.insert(words.end(), more.begin(), more.end());
    if (!training.conditions.empty())
      words.insert(words.end(), {"--conditions",
                                 write("conditions.json", R"({"schema": "motley.conditions/1", )" +
                                                              training.conditions + "}")});
    return words;
  }
  Json simulate(const Training& training, const Words& more) {
    return answer(asking(training, more));
  }
  std::string refused(const Words& more, const std::string& conditions = "") {
    return refusal(asking({.conditions = conditions}, more));
  }
  std::vector<Json> kept(const std::string& path) const {
    std::vector<Json> found;
    const std::string text = read_file(path).value();
    for (const std::string_view line : split(text, '\n'))
      if (!line.empty()) found.push_back(parse_json(line, path).value());
    return found;
  }
  std::vector<std::string> plans_from(const std::string& words) const {
    std::vector<std::string> plans;
    for (const Json& line : kept(decisions_)) {
      const bool says = line.at("why").get<std::string>().find(words) != std::string::npos;
      const std::string plan = line.value("plan", "");
      if ((says || !plans.empty()) && !plan.empty()) plans.push_back(plan);
    }
    return plans;
  }
  static void expect_kept(const std::vector<Json>& lines, const Json& decisions) {
    ASSERT_EQ(lines.size(), decisions.size());
    for (std::size_t i = 0; i < lines.size(); ++i)
      EXPECT_EQ(lines[i].at("begins"), decisions.at(i).at("begins"));
  }

  const std::string decisions_ = directory_.file("decisions.jsonl");
};

constexpr const char* kSlow = R"("slow_downs": [{"device": "a:0", "from_s": 1, "factor": 3}])";

TEST_F(SimulateVerbTest, ADeviceThatSlowsIsGivenLess) {
  const Training slow{.conditions = kSlow};
  const Words flags = {"--adapt", "split", "--decisions", decisions_};
  const Json found = simulate(slow, flags);
  const Json &decided = found.at("under_policy"), &planned = found.at("as_planned"),
             &knowing = found.at("knowing_all");
  EXPECT_EQ(decided.at("policy"), "motley");
  EXPECT_EQ(decided.at("adapt"), "split");
  EXPECT_EQ(planned.at("policy"), "none");
  EXPECT_LT(knowing.at("total_s"), decided.at("total_s"));
  EXPECT_LT(decided.at("total_s"), planned.at("total_s"));
  EXPECT_EQ(decided.at("steps"), 120);
  EXPECT_EQ(knowing.at("steps"), 120);
  EXPECT_NEAR(decided.at("steps_per_s"), 120 / decided.at("total_s").get<double>(), 1e-9);
  const std::vector<Json> lines = kept(decisions_), splits = that_do(decided, "split");
  expect_kept(lines, decided.at("decisions"));
  // A third as fast: less than 0.7 of its former samples.
  const Json begun = parse_json(lines[0].at("plan").get<std::string>(), "plan").value();
  const Json& replicas = begun.at("replicas");
  const auto of_a = std::find_if(replicas.begin(), replicas.end(), [](const Json& each) {
    return each.at("regions").at(0).at("devices") == Json{"a:0"};
  });
  ASSERT_NE(of_a, replicas.end());
  EXPECT_LT(static_cast<double>(shares_of(splits.back()).at("a:0")),
            0.7 * of_a->at("samples").get<double>());
  for (const Json& told : that_do(decided, "tell"))
    EXPECT_EQ(told.at("action").at("device"), "a:0");
  EXPECT_THAT(that_do(decided, "tell"), Not(IsEmpty()));
  // The result is as expected, except that exchanges slow down compute.
  const double expected = splits.back().at("expected_s");
  EXPECT_NEAR(splits.back().at("came_s"), expected, 0.1 * expected);
  EXPECT_EQ(parse_json(lines.back().at("plan").get<std::string>(), "plan")->at("schema"),
            "motley.plan/1");
  EXPECT_EQ(simulate(slow, flags), found);
  ASSERT_EQ(call(asking(slow, flags)), kDone);
  EXPECT_THAT(out_, HasSubstr("knowing all"));
  EXPECT_THAT(out_, HasSubstr("expected"));
  // Its exchanges are not slower, and count as well.
  EXPECT_THAT(out_, ContainsRegex("a:0: takes [12]\\.[0-9]+ times as long as before"));
}

TEST_F(SimulateVerbTest, DevicesGoAndComeBack) {
  const Training away{.conditions =
                          R"("absences": [{"device": "b:0", "from_s": 0.5, "until_s": 1.5}],
                       "recovery": {"detection_s": 0.2})"};
  for (const char* policy : {"motley", "even"}) {
    const Json found =
        simulate(away, {"--adapt", "split", "--policy", policy, "--decisions", decisions_});
    const Json& decided = found.at("under_policy");
    EXPECT_EQ(decided.at("steps"), 120);
    EXPECT_EQ(decided.at("lost_steps"), 1);
    EXPECT_EQ(decided.at("stopped"), nullptr);
    // 0.2 s of detection, and the lost part of the step.
    EXPECT_GT(decided.at("lost_s"), 0.2);
    EXPECT_LT(decided.at("lost_s"), 0.3);
    const std::vector<std::string> plans = plans_from("without b:0");
    ASSERT_FALSE(plans.empty()) << policy;
    EXPECT_THAT(plans.front(), Not(HasSubstr("b:0")));
    EXPECT_THAT(plans.back(), HasSubstr("b:0"));
  }
  ASSERT_EQ(call(asking({.conditions = R"("absences": [{"device": "a:0", "from_s": 1},
                    {"device": "b:0", "from_s": 1}, {"device": "c:0", "from_s": 1}])"},
                        {"--adapt", "split"})),
            kDone);
  EXPECT_THAT(out_, HasSubstr("stopped, after"));
}

// Plans are made for the devices that are left, as a run does.
TEST_F(SimulateVerbTest, PlansThatAreTriedLoseDevicesAndGetThemBack) {
  const Training away{.conditions =
                          R"("absences": [{"device": "b:0", "from_s": 0.5, "until_s": 1.5}],
                       "recovery": {"detection_s": 0.2})"};
  const Json found = simulate(away, {"--adapt", "plan", "--decisions", decisions_});
  const Json& decided = found.at("under_policy");
  EXPECT_EQ(decided.at("steps"), 120);
  EXPECT_EQ(decided.at("lost_steps"), 1);
  EXPECT_EQ(decided.at("stopped"), nullptr);
  const std::vector<std::string> plans = plans_from("without b:0");
  ASSERT_FALSE(plans.empty());
  EXPECT_THAT(plans.front(), Not(HasSubstr("b:0")));
  EXPECT_THAT(plans.back(), HasSubstr("b:0"));
  EXPECT_LE(found.at("knowing_all").at("total_s"), decided.at("total_s"));
}

TEST_F(SimulateVerbTest, ABatchThatGrowsGoesOnWithoutADevice) {
  const Training away{
      .steps = 300, .conditions = R"("absences": [{"device": "a:0", "from_s": 0.5, "until_s": 1.5}],
                       "recovery": {"detection_s": 0.2})"};
  const Json found = simulate(away, {"--adapt", "batch", "--noise-scale", "150000",
                                     "--batch-limits", "30000:300000", "--decisions", decisions_});
  const Json& decided = found.at("under_policy");
  EXPECT_EQ(decided.at("stopped"), nullptr);
  EXPECT_EQ(decided.at("lost_steps"), 1);
  const std::vector<std::string> plans = plans_from("without a:0");
  ASSERT_FALSE(plans.empty());
  EXPECT_THAT(plans.front(), Not(HasSubstr("a:0")));
  EXPECT_THAT(plans.back(), HasSubstr("a:0"));
  // Samples of a lost step count once.
  const std::int64_t samples = decided.at("samples");
  EXPECT_GE(samples, 300 * 100000);
  EXPECT_GT(300 * 100000, samples - decided.at("last_batch").get<std::int64_t>());
  // Without a policy the batch stays and is split again.
  EXPECT_EQ(found.at("as_planned").at("samples"), 300 * 100000);
  EXPECT_EQ(found.at("as_planned").at("stopped"), nullptr);
}

TEST_F(SimulateVerbTest, PlansAreTriedInTurn) {
  write("mlp.motley", control::mlp_text());  // prices more plans quickly
  const Json found = simulate({.batch = 4096, .planner = "auto"}, {"--adapt", "plan"});
  EXPECT_EQ(found.at("under_policy").at("steps"), 120);
  EXPECT_GE(found.at("under_policy").at("total_s"), found.at("knowing_all").at("total_s"));
}

TEST_F(SimulateVerbTest, ABatchGrowsWithItsNoise) {
  const Training small{.batch = 3000, .steps = 2000};
  const Words flags = {"--adapt",        "batch", "--batch-limits", "2500:100000",
                       "--change-pause", "0.001", "--noise-scale",  "0:100000,2000000:400000"};
  Words keeping = flags;
  keeping.insert(keeping.end(), {"--decisions", decisions_});
  const Json found = simulate(small, keeping);
  const Json &decided = found.at("under_policy"), &planned = found.at("as_planned"),
             &bound = found.at("knowing_all");
  const double total = decided.at("total_s"), progress = decided.at("progress");
  // With all known, the same progress takes less time, by any batches.
  EXPECT_NEAR(bound.at("progress"), progress, 1e-6 * progress);
  EXPECT_GE(bound.at("last_batch"), 2500);
  EXPECT_LE(bound.at("last_batch"), 100000);
  EXPECT_LT(bound.at("total_s"), total);
  EXPECT_LT(total, 1.5 * bound.at("total_s").get<double>());
  EXPECT_NEAR(decided.at("over_bound"), total / bound.at("total_s").get<double>() - 1, 1e-9);
  const std::int64_t samples = decided.at("samples"), last = decided.at("last_batch");
  EXPECT_GE(samples, 2000 * 3000);
  EXPECT_LT(samples, 2000 * 3000 + 100000);
  EXPECT_LT(decided.at("steps"), 1500);
  EXPECT_EQ(planned.at("samples"), 2000 * 3000);
  EXPECT_EQ(planned.at("steps"), 2000);
  EXPECT_EQ(planned.at("last_batch"), 3000);
  EXPECT_NEAR(planned.at("progress"), 2000, 1e-6);
  EXPECT_GT(last, 5000);
  EXPECT_LE(last, 100000);
  EXPECT_LT(progress, 2000);
  EXPECT_GT(1.5 * progress, 2000);
  EXPECT_GT(progress / total, 1.1 * 2000 / planned.at("total_s").get<double>());
  std::vector<Json> batches = that_do(decided, "batch");
  std::erase_if(batches, [](const Json& each) { return each.at("policy") != "motley"; });
  ASSERT_THAT(batches, Not(IsEmpty()));
  EXPECT_THAT(batches[0].at("why").get<std::string>(), HasSubstr("noise scale"));
  std::int64_t sum = 0;
  for (const auto& [device, share] : shares_of(batches.back())) sum += share;
  EXPECT_EQ(sum, last);
  expect_kept(kept(decisions_), decided.at("decisions"));
  ASSERT_EQ(call(asking(small, flags)), kDone);
  for (const char* words : {"progress is in steps of the first batch", "samples, the batch split",
                            "knowing all", "over the best batch at each moment"})
    EXPECT_THAT(out_, HasSubstr(words));
  const Json still = simulate({.batch = 3000, .steps = 300}, {"--adapt", "batch", "--batch-limits",
                                                              "3000:100000", "--noise-scale", "0"});
  EXPECT_EQ(still.at("under_policy").at("last_batch"), 3000);
  EXPECT_NEAR(still.at("under_policy").at("progress"), 300, 1e-6);
}

class BatchPolicyVerbTest : public SimulateVerbTest,
                            public ::testing::WithParamInterface<const char*> {};

TEST_P(BatchPolicyVerbTest, DecidesWithinTheLimits) {
  const std::string policy = GetParam();
  const Json decided = simulate({.batch = 3000, .steps = 600},
                                {"--adapt", "batch", "--policy", policy, "--noise-scale", "150000",
                                 "--epoch-samples", "150000", "--batch-limits", "3000:100000"})
                           .at("under_policy");
  EXPECT_EQ(decided.at("policy"), policy);
  EXPECT_GE(decided.at("last_batch"), 3000);
  EXPECT_LE(decided.at("last_batch"), 100000);
  EXPECT_GE(decided.at("samples"), 600 * 3000);
}

TEST_P(BatchPolicyVerbTest, SharesAreMultiplesOfTheMicroBatches) {
  const std::string policy = GetParam();
  Training training{.batch = 60000, .steps = 300, .planner = "manual"};
  if (policy == "motley")
    training.conditions = R"("absences": [{"device": "b:0", "from_s": 0.5, "until_s": 1.5}])";
  const Json found = simulate(
      training, {"--adapt", "batch", "--policy", policy, "--noise-scale", "1500000",
                 "--epoch-samples", "1500000", "--batch-limits", "59990:300000", "--micro-batches",
                 "8", "--batch-split", "40000,12000,8000", "--decisions", decisions_});
  const Json &decided = found.at("under_policy"), &bound = found.at("knowing_all");
  EXPECT_EQ(decided.at("stopped"), nullptr);
  EXPECT_GT(decided.at("last_batch"), 60000);
  EXPECT_LE(decided.at("last_batch"), 300000);
  EXPECT_EQ(decided.at("last_batch").get<int>() % 8, 0);
  EXPECT_EQ(bound.at("last_batch").get<int>() % 8, 0);  // the known optimum, too
  std::size_t most = 0;
  for (const Json& line : kept(decisions_)) {
    const std::string text = line.value("plan", "");
    if (text.empty()) continue;
    const Json replicas = parse_json(text, "plan")->at("replicas");
    most = std::max(most, replicas.size());
    for (const Json& replica : replicas) {
      EXPECT_EQ(replica.at("samples").get<int>() % 8, 0);
      EXPECT_EQ(replica.at("micro_batches"), 8);
    }
  }
  EXPECT_GT(most, 1U);
  std::vector<Json> batches = that_do(decided, "batch");
  std::erase_if(batches, [](const Json& each) {
    return each.at("expected_s").is_null() || each.at("came_s").is_null();
  });
  ASSERT_THAT(batches, Not(IsEmpty()));
  const double expected = batches.back().at("expected_s");
  EXPECT_NEAR(batches.back().at("came_s"), expected, 0.2 * expected);
}

INSTANTIATE_TEST_SUITE_P(Policies, BatchPolicyVerbTest,
                         ::testing::Values("motley", "adaptdl", "cannikin", "simigrad", "jabas"),
                         [](const auto& each) { return std::string(each.param); });

TEST_F(SimulateVerbTest, SaysWhatIsWrong) {
  EXPECT_EQ(refused({"--policy", "even"}),
            "2 --policy goes with --adapt plan, split or batch [cli.policy]");
  EXPECT_EQ(refused({"--decisions", "x"}),
            "2 --decisions goes with --adapt plan, split or batch [cli.decisions]");
  EXPECT_EQ(refused({"--adapt", "btach"}),
            "2 --adapt: found 'btach', wanted plan, split or batch [cli.adapt]");
  EXPECT_EQ(refused({"--adapt", "batch"}),
            "2 --adapt batch: a simulation has no gradients; say their noise scale by "
            "--noise-scale, as samples: a run logs what it is (decisions.jsonl) [cli.noise-scale]");
  EXPECT_EQ(refused({"--adapt", "batch", "--noise-scale", "5:"}),
            "2 --noise-scale: found '5:', wanted a number of samples, or such after rising numbers "
            "of samples taken: 0:200,20000:1500 [cli.noise-scale]");
  EXPECT_EQ(refused({"--noise-scale", "5"}),
            "2 --noise-scale and --epoch-samples go with --adapt batch [cli.batch]");
  EXPECT_EQ(refused({"--adapt", "split", "--batch-limits", "1:2"}),
            "2 --batch-limits, --batch-rule and --objective go with --adapt batch [cli.batch]");
  EXPECT_EQ(refused({"--adapt", "batch", "--noise-scale", "5", "--policy", "adaptdl"}),
            "2 --policy adaptdl: decides once a pass over the data; add --epoch-samples "
            "[cli.policy]");
  EXPECT_EQ(refused({"--adapt", "batch", "--noise-scale", "5", "--policy", "lb-bsp"}),
            "2 unknown policy 'lb-bsp', wanted one of motley adaptdl cannikin simigrad jabas "
            "[adapt.policy]");
  EXPECT_EQ(refused({"--adapt", "split", "--policy", "evn"}),
            "2 unknown policy 'evn', wanted one of motley even hetseq adaptdl lb-bsp cannikin, did "
            "you mean 'even'? [adapt.policy]");
  EXPECT_EQ(refused({"--adapt", "split"}, R"("slow_downs": [{"device": "z:0", "factor": 2}])"),
            "2 slow-down of z:0: the cluster has no such device [simulate.conditions]");
  EXPECT_EQ(refused({"--adapt", "plan", "--policy", "even"}),
            "2 --policy goes with --adapt split or batch [cli.policy]");
  EXPECT_EQ(refusal(asking({.steps = 0}, {"--adapt", "split"})),
            "2 --steps: wanted a number above 0 [cli.steps]");
  EXPECT_EQ(refused({"--adapt", "split", "--change-steps", "-1"}),
            "2 --change-steps: wanted a number from 0 on [cli.change]");
  EXPECT_EQ(refused({"--adapt", "split", "--change-pause", "-1"}),
            "2 --change-pause: wanted seconds from 0 to 1e9 [cli.change]");
}

// With constant noise and devices: the best split of one batch in all steps.
TEST_F(SimulateVerbTest, TheBoundOfTheBatchIsThatOfTheBestOnAGrid) {
  constexpr double kNoise = 150000, kFirst = 3000, kMost = 100000;
  // Without exchanges inside a step, whose overlap lets the split planner beat the bound.
  std::string text = search::deep_text(2, 512);
  text.replace(text.find("batch 1 4096"), 12, "batch 1 100000");
  write("mlp.motley", text);
  const Json found =
      simulate({.batch = 3000, .steps = 4000},
               {"--adapt", "batch", "--noise-scale", "150000", "--batch-limits", "2500:100000"});
  const Json &bound = found.at("knowing_all"), &decided = found.at("under_policy");
  const double progress = decided.at("progress");
  struct Best {
    double seconds = 1e300, batch = 0, step = 0;
  } best;
  for (int i = 0; i < 24; ++i) {
    const double batch = std::round(kFirst * std::pow(kMost / kFirst, i / 23.0));
    // Seconds to the same progress with this batch, by the split planner's plan.
    const double step = simulate({.batch = static_cast<std::int64_t>(batch), .steps = 2},
                                 {"--adapt", "split", "--policy", "even"})
                            .at("as_planned")
                            .at("step_s_median");
    const double seconds =
        progress * step / (batch / kFirst * (kNoise + kFirst) / (kNoise + batch));
    if (seconds < best.seconds) best = {seconds, batch, step};
  }
  // The grids differ, with ratios of 1.16 here and 1.06 there, and steps are whole.
  EXPECT_NEAR(bound.at("total_s"), best.seconds, 2e-3 * best.seconds + best.step);
  EXPECT_NEAR(bound.at("last_batch").get<double>() / best.batch, 1, 0.16);
  EXPECT_GT(decided.at("over_bound"), 0);
}

// With a slow-down in the middle the bound lies between those of slow and fast devices.
TEST_F(SimulateVerbTest, TheBoundOfTheBatchFollowsNoiseAndDevices) {
  const auto flags = [](const char* noise) {
    return Words{"--adapt", "batch", "--noise-scale", noise, "--batch-limits", "2500:100000"};
  };
  Training training{.batch = 3000, .steps = 300};
  const Json quick = simulate(training, flags("150000")).at("knowing_all");
  const double middle = quick.at("total_s").get<double>() / 2;
  std::string each;
  for (const char* device : {"a:0", "b:0", "c:0"})
    each += fmt::format(R"({}{{"device": "{}", "from_s": {}, "factor": 2}})",
                        each.empty() ? "" : ", ", device, middle);
  training.conditions = "\"slow_downs\": [" + each + "]";
  const Json slow = simulate(training, flags("150000"));
  const auto rate = [](const Json& rehearsed) {
    return rehearsed.at("progress").get<double>() / rehearsed.at("total_s").get<double>();
  };
  EXPECT_LT(0.5 * rate(quick), rate(slow.at("knowing_all")));
  EXPECT_LT(rate(slow.at("knowing_all")), rate(quick));
  EXPECT_LT(slow.at("knowing_all").at("total_s"), slow.at("under_policy").at("total_s"));
  // Noise that grows with the samples makes the last batch larger.
  training.conditions.clear();
  const Json grown = simulate(training, flags("0:5000,500000:1000000")).at("knowing_all");
  EXPECT_GT(grown.at("last_batch"), 2 * quick.at("last_batch").get<int>());
}

/// a is owned, b is a spot machine, and c, on demand, is absent at first.
class RentedSimulateVerbTest : public SimulateVerbTest {
 protected:
  struct Rent {
    std::string deadline = "1000h";
    std::string absences;
    std::string notice = "1ms";
    std::string absent = "c:0";
    Words adapt = {"--adapt", "split"};
  };

  RentedSimulateVerbTest() {
    write_cluster(three_kinds("spot = true\nzone = \"z-1\"", "zone = \"z-1\""));
  }
  Words renting(const Rent& rent, const Words& more = {}) const {
    Words words = rent.adapt;
    words.insert(words.end(), {"--absent", rent.absent, "--deadline", rent.deadline, "--market",
                               write("market.toml", fmt::format(R"(schema = "motley.market/1"
name = "rented"
[[offer]]
kind = "v100-16g"
zone = "z-1"
spot = true
price_per_hour = 1
start_cold = "2s"
losses_per_hour = 0
notice = "{}"
[[offer]]
kind = "t4"
zone = "z-1"
price_per_hour = 2
start_cold = "2s"
)",
                                                                rent.notice))});
    words.insert(words.end(), more.begin(), more.end());
    return asking({.steps = 2000, .conditions = "\"absences\": [" + rent.absences + "]"}, words);
  }
  static std::string away(double from, double until) {
    return fmt::format(R"({{"device": "b:0", "from_s": {}, "until_s": {}}})", from, until);
  }
  static std::vector<Json> asked(const Json& found) {
    std::vector<Json> actions;
    for (const Json& each : that_do(found.at("under_policy"), "rent"))
      actions.push_back(each.at("action"));
    return actions;
  }
};

TEST_F(RentedSimulateVerbTest, ALostMachineIsRentedAgainWhereTheDeadlineWantsIt) {
  const Json whole = answer(renting({}, {"--rent-policy", "none"}));
  EXPECT_THAT(asked(whole), IsEmpty());
  EXPECT_EQ(whole.at("under_policy").at("rent").at("lost"), 0);
  EXPECT_EQ(whole.at("under_policy").at("stopped"), nullptr);
  const double alone = whole.at("under_policy").at("total_s");
  const Rent near{.deadline = fmt::format("{}s", alone + 8), .absences = away(3, 4)};
  const Json found = answer(renting(near));
  const Json &decided = found.at("under_policy"), &rent = decided.at("rent");
  // Machines are requested one at a time, and returned when the others are in time again.
  std::int64_t asks = 0, returns = 0;
  for (const Json& each : asked(found)) {
    EXPECT_EQ(std::abs(each.at("count").get<int>()), 1);
    EXPECT_EQ(each.at("zone"), "z-1");
    ++(each.at("count") == 1 ? asks : returns);
  }
  EXPECT_GT(asks, 0);
  EXPECT_EQ(rent.at("asked"), asks);
  EXPECT_EQ(rent.at("came"), asks);
  EXPECT_EQ(rent.at("returned"), returns);
  EXPECT_EQ(rent.at("lost"), 1);
  EXPECT_EQ(decided.at("lost_steps"), 1);
  EXPECT_GT(rent.at("spare_s"), 0);
  // Between one and three machines' hours at 1.
  EXPECT_GT(rent.at("paid"), alone / 3600);
  EXPECT_LT(rent.at("paid"), 3 * alone / 3600);
  // Without decisions the same loss makes it late.
  const Json& still = found.at("as_planned").at("rent");
  EXPECT_EQ(still.at("asked"), 0);
  EXPECT_LT(still.at("spare_s"), 0);
  EXPECT_EQ(still.at("policy"), "none");
  EXPECT_EQ(found.at("knowing_all"), nullptr);
  // A notice comes early enough for a split without the machine.
  Rent noticed = near;
  noticed.notice = "1s";
  const Json told = answer(renting(noticed)).at("under_policy");
  EXPECT_EQ(told.at("lost_steps"), 0);
  EXPECT_EQ(told.at("rent").at("lost"), 1);
  // It is absent when it would arrive, so an on-demand machine replaces it.
  Rent gone = near;
  gone.absences = away(3, 1000);
  const Json without = answer(renting(gone));
  const std::vector<Json> instead = asked(without);
  EXPECT_TRUE(std::any_of(instead.begin(), instead.end(),
                          [](const Json& each) { return each.at("spot") == false; }));
  EXPECT_EQ(without.at("under_policy").at("rent").at("came"), 1);
}

TEST_F(RentedSimulateVerbTest, WhoIsInTimeGivesBack) {
  const Json found = answer(renting({.deadline = "200s"}));
  const Json& decided = found.at("under_policy");
  ASSERT_THAT(asked(found), SizeIs(1));
  EXPECT_EQ(asked(found)[0].at("count"), -1);
  EXPECT_EQ(decided.at("rent").at("returned"), 1);
  EXPECT_EQ(decided.at("lost_steps"), 0);
  EXPECT_EQ(decided.at("rent").at("lost"), 0);
  const Json kept_all = answer(renting({.deadline = "200s"}, {"--rent-policy", "greedy"}));
  EXPECT_GT(kept_all.at("under_policy").at("rent").at("paid"),
            2 * decided.at("rent").at("paid").get<double>());
  std::string whys;
  for (const Json& each : decided.at("decisions"))
    if (each.at("policy") == "market") whys += each.at("why").get<std::string>() + "\n";
  EXPECT_THAT(whys, HasSubstr("gives back b, the others are in time and cost"));
}

TEST_F(RentedSimulateVerbTest, RentingIsOfMachinesAndSplits) {
  const std::string wanted =
      "2 --market: rented machines go and come, and the batch is split again: add --adapt split or "
      "batch [cli.market]";
  EXPECT_EQ(refusal(renting({.adapt = {}})), wanted);
  EXPECT_EQ(refusal(renting({.adapt = {"--adapt", "plan"}})), wanted);
  EXPECT_EQ(refusal(renting({.absent = "d:0"})),
            "2 cluster 'kinds' has no device 'd:0', did you mean 'a:0'? [cluster.unknown-device]");
  EXPECT_EQ(refused({"--adapt", "split", "--absent", "c:0"}),
            "2 --absent: of machines that may be rented; give --market [cli.absent]");
}

}  // namespace
}  // namespace motley::cli
