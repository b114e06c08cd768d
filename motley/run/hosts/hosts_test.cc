#include "motley/run/hosts/hosts.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>

#include "motley/run/hosts/here.h"
#include "motley/testing/forked_agent.h"
#include "motley/testing/launched_ranks.h"
#include "motley/testing/scripted_agent.h"

namespace motley::run {
namespace {

namespace fs = std::filesystem;

/// Hosts whose agents are shell scripts.
class HostsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::signal(SIGPIPE, SIG_IGN);
    std::string pattern = ::testing::TempDir() + "motley-hosts-XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
    hosts_ = std::make_unique<Hosts>(
        [this](const std::string& host) {
          ++calls_[host];
          return std::vector<std::string>{"sh", "-c", scripts_.at(host)};
        },
        kVersions);
    hosts_->set_patience(8);  // a hang by mistake fails in time
  }
  void TearDown() override {
    hosts_.reset();
    fs::remove_all(dir_);
  }

  static std::string says_hello(const Json& more = Json::object()) {
    Json hello{{"is", "hello"}, {"motley", "1.2"}, {"torch", "2.15"}, {"scratch", "/there"}};
    hello.update(more);
    return "echo '" + hello.dump() + "'\n";
  }
  std::string touches(const std::string& name) const { return "touch " + dir_ + "/" + name + "\n"; }
  std::string waits_for(const std::string& name) const {
    return "until [ -e " + dir_ + "/" + name + " ]; do sleep 0.01; done\n";
  }
  bool is_there(const std::string& name) const { return fs::exists(dir_ + "/" + name); }

  static constexpr const char* kStays = "exec cat > /dev/null\n";  // until its input ends
  static inline const Hosts::Versions kVersions{"1.2", "2.15"};
  std::string dir_;
  std::map<std::string, std::string> scripts_;
  std::map<std::string, int> calls_;
  std::unique_ptr<Hosts> hosts_;
};

// Neither b nor c answers before the other is started.
TEST_F(HostsTest, AgentsAreStartedSideBySideAndEachOnce) {
  scripts_["b"] = touches("b") + waits_for("c") + says_hello({{"machine", "1"}}) + kStays;
  scripts_["c"] = touches("c") + waits_for("b") + says_hello({{"machine", "2"}}) + kStays;
  scripts_["d"] = says_hello({{"machine", "3"}}) + kStays;
  const auto first = hosts_->reach({"b", "c"});
  ASSERT_TRUE(first) << first.error().message;
  ASSERT_TRUE(hosts_->reach({"b", "c", "d"}));
  EXPECT_EQ(calls_, (std::map<std::string, int>{{"b", 1}, {"c", 1}, {"d", 1}}));
  EXPECT_EQ(hosts_->hello("c")["machine"], "2");
  EXPECT_EQ(hosts_->agents_on("d"), std::vector<std::string>{"d"});
  EXPECT_EQ(&hosts_->on("b"), &hosts_->at("b"));
  EXPECT_EQ(hosts_->on("b").host(), "b");
}

TEST_F(HostsTest, TheFirstThatDoesNotAnswerIsNamedWithWhatWasTried) {
  scripts_["b"] = says_hello() + kStays;
  scripts_["c"] = scripts_["d"] = "echo no such host >&2; exit 255";
  const auto reached = hosts_->reach({"b", "c", "d"});
  ASSERT_FALSE(reached);
  EXPECT_EQ(reached.error().kind, ErrorKind::kRuntime);
  EXPECT_EQ(reached.error().code, "host.unreachable");
  EXPECT_EQ(reached.error().message,
            "host c: the connection ended; it said: \"no such host\"; tried: sh -c echo no such "
            "host >&2; exit 255; see that this command works without a password and that motley "
            "lies there at the same path or in the PATH; a host that is gone is left out by "
            "--exclude of its devices, or by probing again; and 1 more hosts");
  EXPECT_EQ(hosts_->agents_on("b").size(), 1U);
  EXPECT_TRUE(hosts_->agents_on("c").empty());
}

TEST_F(HostsTest, WhatIsNoHelloIsSaidAsWhatItSaid) {
  scripts_["b"] = "echo Welcome to b; echo '[1, 2]'; echo '{\"is\": \"beat\"}'; exit 0";
  const auto reached = hosts_->reach({"b"});
  ASSERT_FALSE(reached);
  EXPECT_EQ(reached.error().code, "host.unreachable");
  EXPECT_EQ(reached.error().message.rfind(
                "host b: the connection ended; it said: \"[1, 2]\"; tried: sh -c", 0),
            0U)
      << reached.error().message;
  // A login shell's greeting before the hello is accepted.
  scripts_["b"] = "echo Welcome to b\n" + says_hello() + kStays;
  EXPECT_TRUE(hosts_->reach({"b"}));
}

// Everyone gets at least a second, because data that arrived meanwhile is still to be read.
TEST_F(HostsTest, AHostThatHangsIsGivenUpAfterThePatience) {
  hosts_->set_patience(1);
  scripts_["b"] = "exec sleep 60";
  scripts_["c"] = says_hello() + kStays;
  const auto begin = std::chrono::steady_clock::now();
  const auto missing = hosts_->reach_some({"b", "c"});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  ASSERT_EQ(missing.size(), 1U);
  EXPECT_EQ(missing.at("b").code, "host.unreachable");
  EXPECT_EQ(missing.at("b").message.rfind("host b: no answer within 1 s; tried: sh -c exec", 0), 0U)
      << missing.at("b").message;
  EXPECT_EQ(hosts_->agents_on("c").size(), 1U);  // it had answered long before
}

TEST_F(HostsTest, AnotherVersionIsStaleAndItsAgentEnds) {
  const struct {
    Json hello;
    std::string found;
  } cases[] = {
      {{{"motley", "0.0.1"}}, "found Motley 0.0.1, here is 1.2; install the same on all hosts"},
      {{{"torch", "2.9"}}, "found PyTorch 2.9, here is 2.15; install the same on all hosts"},
      {{{"torch", ""}, {"fault", "no motley-worker"}},
       "found PyTorch (none), here is 2.15; install the same on all hosts (it says: no "
       "motley-worker)"}};
  int number = 0;
  for (const auto& [hello, found] : cases) {
    const std::string ended = "ended-" + std::to_string(++number);
    scripts_["b"] = says_hello(hello) + "cat > /dev/null\n" + touches(ended);
    const auto reached = hosts_->reach({"b"});
    ASSERT_FALSE(reached);
    EXPECT_EQ(reached.error().kind, ErrorKind::kStale);
    EXPECT_EQ(reached.error().code, "host.version");
    EXPECT_EQ(reached.error().message, "host b: " + found);
    EXPECT_TRUE(hosts_->agents_on("b").empty());
    EXPECT_TRUE(is_there(ended));
    const auto started = hosts_->start_agent("b");
    ASSERT_FALSE(started);
    EXPECT_EQ(started.error().message, "host b: " + found);
  }
}

TEST_F(HostsTest, ThoseThatWereMissingAreTriedAnew) {
  scripts_["b"] = says_hello() + kStays;
  scripts_["c"] = "exit 1";
  const auto missing = hosts_->reach_some({"b", "c"});
  ASSERT_EQ(missing.size(), 1U);
  EXPECT_EQ(missing.begin()->first, "c");
  scripts_["c"] = scripts_["b"];
  EXPECT_TRUE(hosts_->reach_some({"b", "c"}).empty());
  EXPECT_EQ(calls_, (std::map<std::string, int>{{"b", 1}, {"c", 2}}));
}

// c says hello once b has received a heartbeat, which is sent while c is awaited.
TEST_F(HostsTest, HostsThatHaveAnsweredAreToldThatTheCoordinatorLivesWhileOthersAreSlow) {
  scripts_["b"] = says_hello({{"machine", "1"}}) + "head -n 1 > " + dir_ + "/heard\n" +
                  touches("told") + kStays;
  scripts_["c"] = waits_for("told") + says_hello({{"machine", "2"}}) + kStays;
  const auto reached = hosts_->reach({"b", "c"});
  ASSERT_TRUE(reached) << reached.error().message;
  EXPECT_EQ(read_file(dir_ + "/heard").value(), "{\"do\":\"beat\"}\n");
}

TEST_F(HostsTest, TwoNamesOfOneMachineAreAnError) {
  for (const char* host : {"b", "bee"}) scripts_[host] = says_hello({{"machine", "m"}}) + kStays;
  const auto reached = hosts_->reach({"b", "bee"});
  ASSERT_FALSE(reached);
  EXPECT_EQ(reached.error().kind, ErrorKind::kUsage);
  EXPECT_EQ(reached.error().code, "host.twice");
  EXPECT_EQ(reached.error().message, "b and bee are one machine: name it once");
}

// An address that nobody has (RFC 5737) is not this machine's.
TEST_F(HostsTest, AHostThatComesIsNoneOfTheOthersNorThisMachine) {
  scripts_["b"] = says_hello({{"machine", "m"}}) + kStays;
  ASSERT_TRUE(hosts_->reach({"b"}));
  const auto check = [&](const std::string& host, const std::string& machine) {
    Hosts::Reached reached;
    reached.hello = {{"machine", machine}};
    const auto checked = hosts_->check_name(host, reached);
    return checked ? "" : checked.error().code + ": " + checked.error().message;
  };
  EXPECT_EQ(check("bee", "m"), "host.twice: bee is b: name it so, once");
  EXPECT_EQ(check("b", "m"), "");  // it has come back
  EXPECT_EQ(check("c", "n"), "");
  EXPECT_EQ(check("203.0.113.1", machine_identity()),
            "host.twice: 203.0.113.1 is " + own_host_name() + ": name it so, once");
  EXPECT_EQ(check("localhost", machine_identity()), "");
}

TEST_F(HostsTest, AnAgentThatWasStartedBesideIsTakenInInPlaceOfTheOneBefore) {
  scripts_["b"] = says_hello({{"machine", "old"}}) + "cat > /dev/null\n" + touches("ended");
  ASSERT_TRUE(hosts_->reach({"b"}));
  scripts_["b"] = says_hello({{"machine", "new"}}) + kStays;
  Result<Hosts::Reached> started;
  std::thread([&] { started = hosts_->start_agent("b"); }).join();
  ASSERT_TRUE(started) << started.error().message;
  EXPECT_EQ(hosts_->hello("b")["machine"], "old");
  EXPECT_FALSE(is_there("ended"));
  hosts_->take_in("b", std::move(*started));
  EXPECT_TRUE(is_there("ended"));
  EXPECT_EQ(hosts_->hello("b")["machine"], "new");
  EXPECT_EQ(hosts_->agents_on("b"), std::vector<std::string>{"b"});
  ASSERT_TRUE(hosts_->reach({"b"}));
  EXPECT_EQ(calls_["b"], 2);
}

TEST_F(HostsTest, AnAgentThatCannotBeStartedIsSaid) {
  scripts_["b"] = "echo gone >&2; exit 1";
  const auto started = hosts_->start_agent("b");
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, "host.unreachable");
  EXPECT_NE(started.error().message.find("it said: \"gone\""), std::string::npos);
  Hosts none([](const std::string&) { return std::vector<std::string>{"/nowhere/ssh"}; },
             kVersions);
  const auto missing = none.reach_some({"b"});
  ASSERT_EQ(missing.size(), 1U);
  EXPECT_EQ(missing.at("b").code, "run.spawn");
}

TEST_F(HostsTest, AgentsEndWithIt) {
  scripts_["b"] = says_hello() + "cat > /dev/null\n" + touches("ended");
  ASSERT_TRUE(hosts_->reach({"b"}));
  EXPECT_FALSE(is_there("ended"));
  hosts_.reset();
  EXPECT_TRUE(is_there("ended"));
}

double calendar_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Of five answers the third is immediate; the others are slow and would differ.
TEST_F(HostsTest, TheClockIsReadFromTheFastestAnswer) {
  int asked = 0;
  ScriptedAgent agent({}, {{"clock", [&](const Json&) {
                              const bool is_quick = ++asked == 3;
                              if (!is_quick) ::usleep(150'000);
                              const double time = is_quick ? calendar_now() + 90 : 0;
                              return Json{{"is", "clock"}, {"time", time}};
                            }}});
  hosts_->take_in("b", agent.give("b"));
  const auto ahead = hosts_->clock_ahead("b");
  ASSERT_TRUE(ahead) << ahead.error().message;
  EXPECT_NEAR(ahead->value, 90, 0.1);
  EXPECT_EQ(asked, 5);
  hosts_.reset();
}

// The time is taken at the beginning of a fifth of a second and attributed to its middle: 90 - 0.1.
TEST_F(HostsTest, TheClockIsToldInTheMiddleOfARoundTrip) {
  ScriptedAgent agent({}, {{"clock", [](const Json&) {
                              const double time = calendar_now() + 90;
                              ::usleep(200'000);
                              return Json{{"is", "clock"}, {"time", time}};
                            }}});
  hosts_->take_in("b", agent.give("b"));
  const auto ahead = hosts_->clock_ahead("b");
  ASSERT_TRUE(ahead) << ahead.error().message;
  EXPECT_NEAR(ahead->value, 89.9, 0.08);
  hosts_.reset();
}

TEST_F(HostsTest, TheWayToAHostIsThatOfItsLogin) {
  scripts_["b"] = says_hello({{"ssh_connection", "10.1.0.1 50022 10.1.0.2 22"}}) + kStays;
  ASSERT_TRUE(hosts_->reach({"b"}));
  const Hosts::Way way = hosts_->way_to("b");
  EXPECT_EQ(way.coordinator, "10.1.0.1");
  EXPECT_EQ(way.host, "10.1.0.2");
  const Hosts::Way unsaid = hosts_->way_to("c", Json::object());  // started by another launcher
  EXPECT_EQ(unsaid.coordinator, own_host_name());
  EXPECT_EQ(unsaid.host, "c");
}

/// An agent that outlives this coordinator, and can be taken over at a port.
class TakeOverTest : public HostsTest {
 protected:
  void SetUp() override {
    HostsTest::SetUp();
    agent_.emplace("b", dir_ + "/cache");
    const Json memory{
        {"view", {"a", "c", "b"}}, {"lead", "a"}, {"arguments", Json::array()}, {"name", "run"}};
    ASSERT_TRUE(agent_->link().make_standby("b", "the word", 20));
    ASSERT_TRUE(agent_->link().send({{"do", "remember"}, {"version", 1}}, memory.dump()));
    agent_->settle();
    port_ = agent_->link().standby_port();
    ASSERT_GT(port_, 0);
  }
  void TearDown() override {
    next_.reset();
    agent_.reset();
    HostsTest::TearDown();
  }
  Result<Hosts::Reached> take_over(const std::string& word) {
    return next_->take_over("b", "127.0.0.1", port_, word);
  }

  std::optional<ForkedAgent> agent_;
  int port_ = 0;
  std::unique_ptr<Hosts> next_ =
      std::make_unique<Hosts>([](const std::string&) { return std::vector<std::string>{"false"}; },
                              Hosts::Versions{"", ""});
};

TEST_F(TakeOverTest, AnAgentWhoseCoordinatorLivesStaysWithIt) {
  const auto taken = take_over("the word");
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, "host.led");
  EXPECT_EQ(taken.error().message, "host b: b: its coordinator lives");
  agent_->settle();
}

TEST_F(TakeOverTest, AnAgentWhoseCoordinatorIsGoneIsTakenByWhoKnowsTheWord) {
  agent_->leave();
  EXPECT_EQ(take_over("a word").error().code, "host.unreachable");
  const Hosts other([](const std::string&) { return std::vector<std::string>{"false"}; },
                    {"9.9", ""});
  EXPECT_EQ(other.take_over("b", "127.0.0.1", port_, "the word").error().code, "host.version");
  auto taken = take_over("the word");
  ASSERT_TRUE(taken) << taken.error().message;
  EXPECT_EQ(Json::parse(taken->hello["memory"].get<std::string>())["lead"], "a");
  // The connection itself tells how they see each other.
  const Hosts::Way way = next_->way_to("b", taken->hello);
  EXPECT_EQ(way.coordinator, "127.0.0.1");
  EXPECT_EQ(way.host, "127.0.0.1");
  next_->take_in("b", std::move(*taken));
  EXPECT_TRUE(next_->on("b").ask({{"do", "clock"}}, "clock", 10));
}

TEST_F(TakeOverTest, WhereNobodyListensIsSaid) {
  port_ = find_free_port().value();
  const auto taken = take_over("the word");
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, "run.connect");
  EXPECT_EQ(taken.error().message, "Connection refused");
}

/// The other ranks of a launcher's job: 1 on this machine, 2 and 3 on another one, "m".
class LaunchedTest : public HostsTest {
 protected:
  void start(const std::string& relay = LaunchedRanks::kReaches) { ranks_.emplace(dir_, relay); }
  static Json hello_of(const std::string& host, const std::string& machine) {
    return {{"motley", "1.2"},   {"torch", "2.15"},     {"scratch", "/there"},
            {"host", host},      {"machine", machine},  {"address", "10.1.0." + host},
            {"cache", "/cache"}, {"processors", "none"}};
  }
  /// Rank 2 knows its machine as 203.0.113.2.
  void start_three() {
    start();
    first_ = &ranks_->add("rank 1", hello_of("here", machine_identity()));
    second_ = &ranks_->add("rank 2", hello_of("m", "machine m"),
                           {{"names", [](const Json& asked) {
                               Json here = Json::array();
                               for (const Json& host : asked.at("hosts"))
                                 here.push_back(host == "203.0.113.2");
                               return Json{{"is", "names"}, {"here", here}};
                             }}});
    third_ = &ranks_->add("3", hello_of("m", "machine m"));
  }
  Result<void> gather(int ranks, double patience = 8) {
    return hosts_->gather(ranks_->worker(), ranks, patience);
  }
  Error gather_error(int ranks, double patience = 8) {
    const auto gathered = gather(ranks, patience);
    EXPECT_FALSE(gathered);
    return gathered ? Error{} : gathered.error();
  }
  void TearDown() override {
    hosts_.reset();
    ranks_.reset();
    HostsTest::TearDown();
  }

  std::optional<LaunchedRanks> ranks_;
  ScriptedAgent *first_ = nullptr, *second_ = nullptr, *third_ = nullptr;
};

TEST_F(LaunchedTest, TheOtherRanksAreTheAgentsOfTheirMachines) {
  start_three();
  const auto gathered = gather(4);
  ASSERT_TRUE(gathered) << gathered.error().message;
  EXPECT_EQ(hosts_->agents_on(""), std::vector<std::string>{"rank 1"});
  EXPECT_EQ(hosts_->launched_hosts(), std::vector<std::string>{"m"});
  EXPECT_EQ(hosts_->at("rank 3").host(), "m (rank 3)");
  // A host of the job is recognized by a rank there: nothing is started.
  const auto reached = hosts_->reach({"203.0.113.2"});
  ASSERT_TRUE(reached) << reached.error().message;
  EXPECT_EQ(hosts_->agents_on("203.0.113.2"), (std::vector<std::string>{"rank 2", "rank 3"}));
  EXPECT_EQ(&hosts_->on("203.0.113.2"), &hosts_->at("rank 2"));
  EXPECT_TRUE(calls_.empty());
  // Only one rank per machine is asked, and none on this one.
  EXPECT_EQ(second_->heard(),
            std::vector<Json>{(Json{{"do", "names"}, {"hosts", Json::array({"203.0.113.2"})}})});
  EXPECT_TRUE(first_->heard().empty() && third_->heard().empty());
  const Hosts::Way way = hosts_->way_to("203.0.113.2");
  EXPECT_EQ(way.coordinator, "127.0.0.1");  // as the relay reports
  EXPECT_EQ(way.host, "10.1.0.m");
}

TEST_F(LaunchedTest, AHostWhereNoneOfTheRanksIsIsNamedWithThoseThatAre) {
  start_three();
  ASSERT_TRUE(gather(4));
  const auto reached = hosts_->reach({"203.0.113.2", "203.0.113.9"});
  ASSERT_FALSE(reached);
  EXPECT_EQ(reached.error().kind, ErrorKind::kStale);
  EXPECT_EQ(reached.error().code, "host.missing");
  EXPECT_EQ(reached.error().message,
            "host 203.0.113.9: none of the launcher's ranks is there (they are on " +
                own_host_name() + ", m)");
}

TEST_F(LaunchedTest, ARankThatIsLostIsNoAnswer) {
  start_three();
  ASSERT_TRUE(gather(4));
  second_->end();
  const auto missing = hosts_->reach_some({"203.0.113.2", "203.0.113.9"});
  ASSERT_EQ(missing.size(), 2U);
  for (const auto& [host, error] : missing) {
    EXPECT_EQ(error.code, "host.lost");
    EXPECT_EQ(error.message.rfind("host m (rank 2): ", 0), 0U) << error.message;
  }
}

TEST_F(LaunchedTest, AllEndWithTheLeadsCode) {
  start_three();
  ASSERT_TRUE(gather(4));
  hosts_->end(3);
  hosts_.reset();  // everything sent has been received
  for (const ScriptedAgent* rank : {first_, second_, third_})
    EXPECT_EQ(rank->heard(), std::vector<Json>{(Json{{"do", "end"}, {"code", 3}})});
}

TEST_F(LaunchedTest, ASingleRankNeedsNoRelay) {
  EXPECT_TRUE(hosts_->gather("/nowhere/worker", 1, 1));
  EXPECT_TRUE(hosts_->launched_hosts().empty());
}

// Rank 1 has spoken before others are awaited.
TEST_F(LaunchedTest, RanksThatDoNotComeAreNamed) {
  start(waits_for("came") + LaunchedRanks::kReaches);
  ranks_->add("rank 1", hello_of("m", "machine m"));
  const Error error = gather_error(3, 0.2);
  EXPECT_EQ(error.code, "run.timeout");
  EXPECT_EQ(error.message, "rank 0 waited 0.2 s for rank 2");
}

// Eight of eleven by number.
TEST_F(LaunchedTest, OfManyRanksThatDoNotComeSomeAreNamed) {
  start();
  EXPECT_EQ(gather_error(12, 0.1).message,
            "rank 0 waited 0.1 s for rank 1, 2, 3, 4, 5, 6, 7, 8 and 3 more");
}

TEST_F(LaunchedTest, ARankOfAnotherVersionIsStale) {
  start();
  Json hello = hello_of("m", "machine m");
  hello["torch"] = "2.9";
  ranks_->add("rank 1", hello);
  const Error error = gather_error(2);
  EXPECT_EQ(error.kind, ErrorKind::kStale);
  EXPECT_EQ(error.code, "host.version");
  EXPECT_EQ(error.message,
            "host rank 1: found PyTorch 2.9, here is 2.15; install the same on all hosts");
}

TEST_F(LaunchedTest, WhoIsNoRankIsSaid) {
  start();
  ranks_->add("rank one", {});
  const Error error = gather_error(2);
  EXPECT_EQ(error.code, "run.relay");
  EXPECT_EQ(error.message, "found 'rank one', wanted a rank");
}

TEST_F(LaunchedTest, ARelayThatDoesNotReachTheStoreSaysWhy) {
  start("echo '{\"event\": \"error\", \"code\": \"run.connect\", \"message\": \"no store\"}'\n");
  const Error refused = gather_error(2);
  EXPECT_EQ(refused.code, "run.connect");
  EXPECT_EQ(refused.message, "no store");
  start("exit 3\n");
  const Error ended = gather_error(2);
  EXPECT_EQ(ended.code, "run.worker-lost");
  EXPECT_EQ(ended.message, ranks_->worker() + " relay ended with exit code 3: it has ended");
}

TEST_F(LaunchedTest, ARelayThatEndsWhileRanksAreWaitedForIsTheEndOfThem) {
  start("echo '{\"event\": \"relay\", \"address\": \"127.0.0.1\"}'\n");
  const Error error = gather_error(2);
  EXPECT_EQ(error.code, "run.peer-lost");
  EXPECT_EQ(error.message, "the connection to the launcher's store has ended");
}

}  // namespace
}  // namespace motley::run
