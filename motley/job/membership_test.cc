#include "motley/job/membership.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "motley/base/json.h"
#include "motley/testing/order_words.h"

namespace motley::job {
namespace {

constexpr Seconds kTimeout(4);

run::WorkerEvent member_says(const char* event, int process, Json fields = Json::object()) {
  return {event, process, std::move(fields)};
}
run::WorkerEvent stands(int process, int halt) {
  Json said = run::recovery_state_to_json({.device = "d" + std::to_string(process)});
  said["halt"] = halt;
  return member_says("halted", process, std::move(said));
}

class MembershipTest : public ::testing::Test {
 protected:
  /// Three of four devices train; the fourth is absent.
  MembershipTest() {
    for (int process = 0; process < 3; ++process) say("ready", process);
    for (int process = 0; process < 3; ++process) say("step", process);
  }

  void say(const char* event, int process, Json fields = Json::object()) {
    members_.on_event(member_says(event, process, std::move(fields)), now_);
  }
  void hear(int process, int halt) { say("heard", process, {{"halt", halt}}); }
  void stand(int process, int halt) { members_.on_event(stands(process, halt), now_); }
  bool lose(int process) { return members_.lose(process, now_); }

  std::vector<std::string> orders() {
    std::vector<std::string> all;
    while (const auto order = members_.next(now_)) all.push_back(order_word(*order));
    return all;
  }
  using Orders = std::vector<std::string>;

  /// Goes from a loss of process 0 to the point where the others know how to continue.
  void come_to_recovering() {
    ASSERT_TRUE(lose(0));
    EXPECT_EQ(orders(), Orders{"halt 1"});
    stand(1, 1);
    stand(2, 1);
    ASSERT_TRUE(members_.still());
    members_.go_on(now_);
  }

  DeviceTable devices_{{"d0", "d1", "d2", "d3"}, {"d3"}};
  Membership members_{devices_, kTimeout};
  Seconds now_{100};
};

TEST_F(MembershipTest, NothingIsToldWhileAllIsWell) {
  EXPECT_EQ(orders(), Orders{});
  EXPECT_TRUE(members_.is_training());
  EXPECT_FALSE(members_.still());
  EXPECT_EQ(devices_.living(), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(devices_.find("d2"), 2);
  EXPECT_EQ(devices_.find("d9"), std::nullopt);
}

TEST_F(MembershipTest, ALossBeforeAllAreReadyEndsTheJob) {
  DeviceTable two({"d0", "d1"}, {});
  Membership none(two, kTimeout);
  EXPECT_FALSE(none.lose(0, now_));
  for (const int ready : {2, 3}) {
    DeviceTable devices({"d0", "d1", "d2", "d3"}, {"d3"});
    Membership members(devices, kTimeout);
    for (int process = 0; process < ready; ++process)
      members.on_event(member_says("ready", process), now_);
    EXPECT_EQ(members.lose(1, now_), ready == 3);
  }
}

TEST_F(MembershipTest, FromALossToTraining) {
  EXPECT_TRUE(lose(0));
  EXPECT_FALSE(members_.is_training());
  EXPECT_EQ(orders(), Orders{"halt 1"});
  EXPECT_EQ(orders(), Orders{});
  EXPECT_EQ(devices_.living(), (std::vector<int>{1, 2}));
  now_ += Seconds(0.25);
  hear(1, 1);
  stand(1, 1);
  EXPECT_FALSE(members_.still());
  hear(2, 1);
  stand(2, 1);
  const auto still = members_.still();
  ASSERT_TRUE(still);
  ASSERT_EQ(still->size(), 2u);
  EXPECT_EQ((*still)[0].device, "d1");
  EXPECT_EQ((*still)[1].device, "d2");
  members_.go_on(now_);
  EXPECT_FALSE(members_.still());
  EXPECT_FALSE(members_.is_training());
  say("change", 1);
  EXPECT_TRUE(members_.is_training());
  EXPECT_EQ(members_.since(), Seconds(100));
  EXPECT_EQ(orders(), Orders{});
}

TEST_F(MembershipTest, OneThatCannotGetOnHaltsAllAsALossDoes) {
  say("stalled", 1);
  say("stalled", 2);  // with the same cause
  EXPECT_EQ(orders(), Orders{"halt 1"});
  EXPECT_EQ(devices_.living(), (std::vector<int>{0, 1, 2}));
}

TEST_F(MembershipTest, WhoDoesNotHearIsKilled) {
  ASSERT_TRUE(lose(0));
  EXPECT_EQ(orders(), Orders{"halt 1"});
  hear(1, 1);
  now_ += Membership::kHearing - Seconds(0.01);
  EXPECT_EQ(orders(), Orders{});
  now_ += Seconds(0.02);
  EXPECT_EQ(orders(), Orders{"kill 2"});
  EXPECT_EQ(orders(), Orders{}) << "once is enough";
  EXPECT_TRUE(lose(2));
  EXPECT_EQ(orders(), Orders{"halt 2"});
}

TEST_F(MembershipTest, WordsBehindACheckpointOnItsWayAreWaitedFor) {
  lose(0);
  EXPECT_EQ(orders(), Orders{"halt 1"});
  hear(1, 1);
  for (int i = 0; i < 5; ++i) {
    say("carrying", 2);
    now_ += Membership::kHearing - Seconds(0.1);
    EXPECT_EQ(orders(), Orders{}) << i;
  }
  now_ += Seconds(0.11);  // no more bytes came
  EXPECT_EQ(orders(), Orders{"kill 2"});
}

TEST_F(MembershipTest, WhoHearsMayTakeAWaitLongToStand) {
  ASSERT_TRUE(lose(0));
  (void)orders();
  hear(1, 1);
  stand(2, 1);  // which implies that it heard
  now_ += kTimeout + Membership::kHearing - Seconds(0.01);
  EXPECT_EQ(orders(), Orders{});
  now_ += Seconds(0.02);
  EXPECT_EQ(orders(), Orders{"kill 1"});
}

TEST_F(MembershipTest, ASecondLossWhileHaltingGivesTheNextNumber) {
  ASSERT_TRUE(lose(0));
  EXPECT_EQ(orders(), Orders{"halt 1"});
  stand(1, 1);
  EXPECT_TRUE(lose(2));
  EXPECT_EQ(orders(), Orders{"halt 2"});
  EXPECT_FALSE(members_.still()) << "1 has only answered the first";
  stand(1, 1);
  EXPECT_FALSE(members_.still());
  stand(1, 2);
  EXPECT_TRUE(members_.still());
}

TEST_F(MembershipTest, OfTwoHaltsOnlyTheLastIsGiven) {
  ASSERT_TRUE(lose(0));
  ASSERT_TRUE(lose(1));
  EXPECT_EQ(orders(), Orders{"halt 2"});
}

TEST_F(MembershipTest, AnAnswerToAnOlderHaltIsNoHearing) {
  ASSERT_TRUE(lose(0));
  ASSERT_TRUE(lose(1));
  (void)orders();
  hear(2, 1);
  now_ += Membership::kHearing + Seconds(0.01);
  EXPECT_EQ(orders(), Orders{"kill 2"});
}

TEST_F(MembershipTest, ALossWhileRecoveringGivesTheNextNumber) {
  come_to_recovering();
  EXPECT_TRUE(lose(1));
  EXPECT_EQ(orders(), Orders{"halt 2"});
  stand(2, 2);
  EXPECT_TRUE(members_.still());
}

TEST_F(MembershipTest, RefusingOrStallingWhileRecoveringHaltsAgain) {
  come_to_recovering();
  say("refused", 1);
  EXPECT_EQ(orders(), Orders{"halt 2"});
  say("refused", 2);  // of an earlier order
  EXPECT_EQ(orders(), Orders{});
  stand(1, 2);
  stand(2, 2);
  members_.go_on(now_);
  say("stalled", 2);
  EXPECT_EQ(orders(), Orders{"halt 3"});
}

TEST_F(MembershipTest, RefusingAPlanThatIsOnlyWishedForIsNoHalt) {
  say("refused", 0);
  EXPECT_EQ(orders(), Orders{});
  EXPECT_TRUE(members_.is_training());
}

// Preparing may take four timeouts: compile, join, move, agree.
TEST_F(MembershipTest, OneThatHangsInPreparingIsFoundByAHalt) {
  come_to_recovering();
  now_ += 4 * kTimeout;
  EXPECT_EQ(orders(), Orders{});
  now_ += Seconds(0.1);
  EXPECT_EQ(orders(), Orders{"halt 2"});
  stand(1, 2);
  now_ += Membership::kHearing + Seconds(0.1);
  EXPECT_EQ(orders(), Orders{"kill 2"});
}

TEST_F(MembershipTest, NobodyLeftEndsTheJob) {
  EXPECT_TRUE(lose(0));
  EXPECT_TRUE(lose(1));
  EXPECT_FALSE(lose(2));
}

TEST_F(MembershipTest, NobodyIsNeededOnceSomeAreThrough) {
  say("done", 0);
  EXPECT_TRUE(lose(1));
  EXPECT_TRUE(lose(2)) << "the last one, too";
  EXPECT_EQ(orders(), Orders{});
}

TEST_F(MembershipTest, AJoinerLivesWhenItIsReady) {
  EXPECT_FALSE(members_.start(1)) << "it lives";
  EXPECT_TRUE(members_.start(3));
  EXPECT_FALSE(members_.start(3)) << "it is coming";
  EXPECT_EQ(orders(), Orders{"start 3"});
  EXPECT_TRUE(devices_[3].life == Life::kJoining);
  EXPECT_FALSE(devices_[3].lives());
  EXPECT_TRUE(devices_[3].has_rejoined);
  EXPECT_FALSE(devices_[1].has_rejoined);
  say("ready", 3);
  EXPECT_TRUE(devices_[3].lives());
  EXPECT_FALSE(devices_[3].life == Life::kJoining);
  EXPECT_EQ(orders(), Orders{});
}

TEST_F(MembershipTest, AJoinerThatDiesBeforeItIsReadyDisturbsNobody) {
  ASSERT_TRUE(members_.start(3));
  (void)orders();
  EXPECT_TRUE(lose(3));
  EXPECT_EQ(orders(), Orders{});
  EXPECT_TRUE(members_.start(3)) << "again";
}

// An order before it can hear would make it seem deaf, and it would be killed.
TEST_F(MembershipTest, AJoinerThatIsReadyWhileOthersHaltIsToldWithThem) {
  ASSERT_TRUE(members_.start(3));
  ASSERT_TRUE(lose(0));
  EXPECT_EQ(orders(), (Orders{"start 3", "halt 1"}));
  hear(1, 1);
  stand(2, 1);
  now_ += Seconds(3);
  say("ready", 3);
  EXPECT_EQ(orders(), Orders{"halt 2"});
  for (const int process : {1, 2, 3}) stand(process, 2);
  ASSERT_TRUE(members_.still());
  EXPECT_EQ(members_.still()->size(), 3u);
}

TEST_F(MembershipTest, WhoIsDismissedIsKilledAndItsEndIsNoLoss) {
  members_.dismiss(2);
  EXPECT_TRUE(devices_[2].life == Life::kDismissed);
  EXPECT_EQ(devices_.living(), (std::vector<int>{0, 1})) << "nobody is to wait for it";
  EXPECT_EQ(orders(), Orders{"kill 2"});
  EXPECT_TRUE(lose(2));
  EXPECT_TRUE(members_.is_training());
  EXPECT_EQ(orders(), Orders{});
  EXPECT_TRUE(members_.start(2));
  say("ready", 2);
  (void)orders();
  EXPECT_TRUE(lose(2)) << "this one was not dismissed";
  EXPECT_EQ(orders(), Orders{"halt 1"});
}

TEST_F(MembershipTest, WhoIsDismissedDoesNotKeepTheJob) {
  members_.dismiss(2);
  EXPECT_TRUE(lose(0));
  EXPECT_FALSE(lose(1)) << "nobody is left but the one that is going";
}

TEST_F(MembershipTest, WhoIsNotThereCannotBeDismissed) {
  members_.dismiss(3);
  EXPECT_EQ(orders(), Orders{});
  ASSERT_TRUE(members_.start(3));
  say("ready", 3);
  (void)orders();
  EXPECT_TRUE(lose(3));
  EXPECT_EQ(orders(), Orders{"halt 1"}) << "it is a loss as any other";
}

TEST_F(MembershipTest, WhoIsKilledIsALossWhenItEnds) {
  members_.kill(1);
  EXPECT_EQ(orders(), Orders{"kill 1"});
  EXPECT_TRUE(members_.is_training());
  EXPECT_TRUE(lose(1));
  EXPECT_EQ(orders(), Orders{"halt 1"});
}

// At the end all finish almost simultaneously.
TEST_F(MembershipTest, WhereSomeAreThroughALossIsNoHalt) {
  say("done", 0);
  EXPECT_FALSE(devices_[0].lives());
  EXPECT_TRUE(lose(0)) << "ended as it should";
  EXPECT_TRUE(lose(1));
  EXPECT_EQ(orders(), Orders{});
  say("stalled", 2);
  EXPECT_EQ(orders(), Orders{"halt 1"}) << "it waits for what will not come";
  stand(2, 1);
  ASSERT_TRUE(members_.still());
}

TEST_F(MembershipTest, WordsOfTheDeadDoNotCount) {
  EXPECT_TRUE(lose(0));
  (void)orders();
  stand(0, 1);
  say("ready", 0);
  EXPECT_FALSE(devices_[0].lives());
  stand(1, 1);
  stand(2, 1);
  EXPECT_EQ(members_.still()->size(), 2u);
}

TEST_F(MembershipTest, AStandingThatCannotBeReadIsNone) {
  EXPECT_TRUE(lose(0));
  (void)orders();
  stand(1, 1);
  say("halted", 2, {{"halt", 1}, {"device", "d2"}});
  EXPECT_FALSE(members_.still());
}

TEST(Memberships, ChangesAreWrittenWithTheirStep) {
  const Json json = membership_to_json(
      {{.step = 7, .lost = {"a"}, .joined = {"b"}, .pause = Seconds(0.5), .lost_steps = 1}});
  EXPECT_EQ(json, Json::parse(R"([{"step": 7, "lost": ["a"], "left": [], "joined": ["b"],
                                   "pause_s": 0.5, "lost_steps": 1}])"));
}

/// Processes that obey, obey late, never obey, or die; time advances to the next event.
class Crowd {
 public:
  explicit Crowd(std::uint64_t seed) : random_(seed) {
    for (int process = 0; process < 5; ++process) begin(process);
    for (int process = 0; process < 5; ++process) {
      say(process, "ready");
      say(process, "step");
    }
  }

  /// Injects faults until then.
  void live_badly(Seconds until) {
    while (now_ < until && !is_over_) {
      const int process = pick(6);
      if (pick(40) == 0 && runs(process)) die(process, 0);
      if (pick(60) == 0 && runs(process)) all_[process].is_deaf = true;
      if (pick(60) == 0 && runs(process)) say(process, "stalled");
      if (pick(60) == 0) members_.start(process);
      if (pick(90) == 0 && devices_.living().size() > 1) members_.dismiss(process);
      if (pick(90) == 0 && runs(process)) members_.kill(process);
      get_on();
    }
  }
  /// Injects no more faults; faulty processes stay faulty.
  bool gets_well(Seconds within) {
    const Seconds end = now_ + within;
    while (now_ < end && !is_over_) {
      get_on();
      if (members_.is_training() && coming_.empty()) return true;
    }
    return is_over_;
  }
  std::string faults;
  int halts() const { return last_halt_; }

 private:
  struct One {
    bool runs = false, is_deaf = false, hangs = false, is_ready = false;
    int life = 0;
  };
  struct Coming {
    Seconds at;
    int process, life;
    std::string event;
    int halt;
  };

  int pick(int below) { return static_cast<int>(random_() % static_cast<std::uint64_t>(below)); }
  bool runs(int process) { return all_[process].runs; }
  void begin(int process) {
    const int life = all_[process].life + 1;
    all_[process] = {.runs = true, .hangs = pick(10) == 0, .life = life};
  }
  void die(int process, double after) { later(after, process, "end"); }
  void later(double after, int process, const std::string& event, int halt = 0) {
    coming_.push_back({now_ + Seconds(after), process, all_[process].life, event, halt});
  }
  void say(int process, const std::string& event, int halt = 0) {
    if (event == "ready") all_[process].is_ready = true;
    if (event == "halted")
      members_.on_event(stands(process, halt), now_);
    else
      members_.on_event({event, process, {{"halt", halt}}}, now_);
  }

  void get_on() {
    now_ += Seconds(0.05);
    std::vector<Coming> due;
    std::erase_if(coming_, [&](const Coming& each) {
      if (each.at > now_) return false;
      due.push_back(each);
      return true;
    });
    for (const Coming& each : due) {
      if (!runs(each.process) || all_[each.process].life != each.life) continue;
      if (each.event == "end") {
        all_[each.process].runs = false;
        if (!members_.lose(each.process, now_)) is_over_ = true;
      } else {
        say(each.process, each.event, each.halt);
      }
    }
    while (const auto order = members_.next(now_)) obey(*order);
    if (!members_.still()) return;
    members_.go_on(now_);
    for (const int process : devices_.living()) {
      if (!runs(process)) faults += "one stands that does not run; ";
      const int what = pick(12);
      if (what == 0) later(0.3, process, "refused");
      if (what == 1) later(0.3, process, "stalled");
      if (what == 2) die(process, 0.3);
    }
    // A process that hangs in preparing holds up all others.
    for (const int process : devices_.living())
      if (all_[process].is_deaf) return;
    if (pick(10) > 0) later(0.8, devices_.living().front(), "change");
  }

  void obey(const Order& order) {
    if (const auto* kill = std::get_if<KillProcess>(&order)) die(kill->process, 0.1);
    if (const auto* start = std::get_if<StartProcess>(&order)) {
      if (runs(start->process)) faults += "started twice; ";
      begin(start->process);
      later(1.0 + 0.1 * pick(30), start->process, "ready");
    }
    const auto* halt = std::get_if<Halt>(&order);
    if (halt == nullptr) return;
    if (halt->number <= last_halt_) faults += "a halt's number came again; ";
    last_halt_ = halt->number;
    for (auto& [process, one] : all_) {
      if (!one.runs || one.is_deaf || !one.is_ready) continue;
      later(0.1, process, "heard", halt->number);
      // A wait ends by its timeout, or earlier when a peer closes.
      if (!one.hangs || pick(2) == 0) later(0.2 + 0.1 * pick(35), process, "halted", halt->number);
    }
  }

  std::mt19937_64 random_;
  std::map<int, One> all_;
  std::vector<Coming> coming_;
  Seconds now_{0};
  DeviceTable devices_{{"0", "1", "2", "3", "4", "5"}, {"5"}};
  Membership members_{devices_, kTimeout};
  int last_halt_ = 0;
  bool is_over_ = false;
};

TEST(Memberships, WhateverHappensTheyComeToTrainOrEnd) {
  int halts = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    Crowd crowd(seed);
    crowd.live_badly(Seconds(60));
    // A round of halting and recovering lasts at most 6 timeouts and succeeds once in three.
    EXPECT_TRUE(crowd.gets_well(Seconds(6 * kTimeout.value * 40)));
    ASSERT_EQ(crowd.faults, "");
    halts += crowd.halts();
  }
  EXPECT_GT(halts, 1000);
}

TEST(MembershipOfAnotherLead, AllThatAreReadyComeToStand) {
  DeviceTable devices({"d0", "d1", "d2"}, {"d0"});
  Membership members(devices, kTimeout);
  for (const int process : {1, 2}) members.on_event(member_says("ready", process), Seconds(10));
  members.take_over(1000, Seconds(9), Seconds(10));
  EXPECT_EQ(order_word(members.next(Seconds(10)).value()), "halt 1001");
  EXPECT_EQ(members.since(), Seconds(9));
  for (const int process : {1, 2}) members.on_event(stands(process, 1001), Seconds(10.1));
  EXPECT_EQ(members.still().value().size(), 2);
}

}  // namespace
}  // namespace motley::job
