#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "motley/testing/verb_calls.h"

namespace motley::cli {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

// Machines with known step times; at most two servers aggregate gradients.
constexpr const char* kServers = R"(schema = "motley.market/1"
name = "servers"
[server]
service = "20ms"
price_per_hour = 0.1
most = 2
[[offer]]
kind = "p100"
zone = "us-east1-c"
price_per_hour = 1.5
step = "100ms"
most = 3
[[offer]]
kind = "p100"
zone = "us-east1-c"
spot = true
price_per_hour = 0.5
step = "100ms"
most = 2
[[offer]]
kind = "p100"
zone = "us-west1-b"
spot = true
price_per_hour = 0.4
step = "100ms"
most = 2
)";

constexpr const char* kGpus = R"(schema = "motley.market/1"
name = "gpus"
[[offer]]
kind = "v100-16g"
zone = "us-west1-b"
spot = true
price_per_hour = 0.74
most = 2
[[offer]]
kind = "v100-16g"
zone = "us-west1-b"
price_per_hour = 2.48
most = 1
)";

class MarketVerbTest : public VerbTest {
 protected:
  Words asking(const std::string& text, Words more) const {
    more.insert(more.begin(), {"plan", "--market", write("market.toml", text)});
    return more;
  }
  std::string refused(const std::string& text, Words more) {
    more.insert(more.end(), {"--steps", "1000"});
    return refusal(asking(text, more));
  }
};

TEST_F(MarketVerbTest, TheCheapestThatIsSeldomLateIsChosen) {
  const Words flags = {"--steps", "360000"};
  const auto with = [&](const char* flag, const char* value) {
    return Words{"--steps", "360000", flag, value};
  };
  const Json found = answer(asking(kServers, with("--deadline", "5h")));
  const Json& mixes = found.at("market");
  const Json& chosen = found.at("chosen");
  EXPECT_THAT(mixes, Contains(chosen));
  EXPECT_LE(chosen.at("late"), 0.05);
  EXPECT_LT(chosen.at("time_s"), 5 * 3600);
  double cost = 0, fastest = mixes.at(0).at("time_s");
  for (const Json& mix : mixes) {
    // Sorted by cost; anything cheaper is late too often.
    EXPECT_GE(mix.at("cost"), cost);
    cost = mix.at("cost");
    fastest = std::min(fastest, mix.at("time_s").get<double>());
    if (mix.at("cost") < chosen.at("cost")) {
      EXPECT_GT(mix.at("late"), 0.05);
    }
    for (const Json& machines : mix.at("machines"))  // regions stay apart
      EXPECT_EQ(machines.at("zone"), mix.at("machines").at(0).at("zone"));
  }
  EXPECT_THAT(found.at("why"), Contains(HasSubstr("one more server would bring")));
  EXPECT_EQ(answer(asking(kServers, with("--budget", "1000"))).at("chosen").at("time_s"), fastest);
  ASSERT_EQ(call(asking(kServers, with("--deadline", "5h"))), kDone);
  EXPECT_EQ(std::count(out_.begin(), out_.end(), '*'), 1);
  EXPECT_THAT(out_, HasSubstr("\n* "));
}

TEST_F(MarketVerbTest, WhereNothingFitsIsExit3AndAnAnswer) {
  const Words asked = asking(kServers, {"--steps", "360000", "--deadline", "1min", "--json"});
  ASSERT_EQ(call(asked), kInfeasible);
  EXPECT_EQ(json().at("chosen"), nullptr);
  EXPECT_THAT(json().at("market"), Not(IsEmpty()));
  EXPECT_THAT(json().at("why").at(0).get<std::string>(), StartsWith("the fastest mix takes "));
}

TEST_F(MarketVerbTest, AModelIsPlannedForEachSetOfMachines) {
  const Json found = answer(asking(
      kGpus, {"-m", model_, "--steps", "1000000", "--global-batch", "64", "--deadline", "12h"}));
  // One to three machines of a kind; 3 x 2 - 1 mixes of spot and on-demand ones.
  EXPECT_EQ(found.at("clusters"), 3);
  EXPECT_EQ(found.at("mixes"), 5);
  EXPECT_GT(found.at("chosen").at("step_s"), 0);
}

TEST_F(MarketVerbTest, SaysWhatIsWrong) {
  const std::string file = directory_.file("market.toml");
  std::string text = kServers;
  text.erase(text.find("price_per_hour = 1.5\n"), 21);
  EXPECT_EQ(refused(text, {}),
            "2 " + file + ":7: [[offer]] has no key 'price_per_hour' [market.missing-key]");
  text = kServers;
  text.replace(text.find("market/1"), 8, "market/9");
  EXPECT_EQ(
      refused(text, {}),
      "2 " + file + ":1: schema \"motley.market/9\", wanted \"motley.market/1\" [market.schema]");
  EXPECT_EQ(refused(kServers, {"--deadline", "soon"}),
            "2 --deadline: found 'soon', wanted a time such as 120s, 3ms, 100us [text.seconds]");
  EXPECT_EQ(refused(kServers, {"--budget", "0"}),
            "2 --budget: found 0, wanted more than 0 [cli.budget]");
  EXPECT_EQ(refused(kServers, {"-C", "x.toml"}),
            "2 --market says which devices there are; leave -C out [cli.market]");
  EXPECT_EQ(refused(kGpus, {}),
            "2 which model? give -m MODEL.motley (written by python -m motley.export) [cli.model]");
  EXPECT_EQ(refusal(asking(kServers, {})),
            "2 --market: how long is the training? give --steps N [cli.steps]");
}

TEST_F(MarketVerbTest, WhatGoesWithAMarketWantsOne) {
  for (const Words& flags :
       {Words{"--deadline", "8h"}, Words{"--budget", "3"}, Words{"--steps", "100"}}) {
    Words asked = {"plan", "-m", model_, "-C", cluster_, "--global-batch", "8"};
    asked.insert(asked.end(), flags.begin(), flags.end());
    EXPECT_EQ(refusal(asked),
              "2 --deadline, --budget and --steps say which machines to rent: give --market "
              "[cli.market]");
  }
}

}  // namespace
}  // namespace motley::cli
