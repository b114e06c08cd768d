#include "motley/job/controller.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <sstream>

#include "motley/base/json.h"
#include "motley/testing/order_words.h"

namespace motley::job {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

/// Names devices by letters; a plan is the list of its devices: "abc".
class PlanTable : public Plans {
 public:
  std::string label(int plan) const override { return plans.at(static_cast<std::size_t>(plan)); }
  std::optional<Seconds> priced(int) const override { return std::nullopt; }
  std::set<std::string> devices(int plan) const override {
    std::set<std::string> devices;
    for (const char device : label(plan)) devices.insert(std::string(1, device));
    return devices;
  }
  bool outlives_losses(int, std::size_t) const override { return true; }
  Result<int> find(const policy::Action& action) override {
    const auto* use = std::get_if<policy::UsePlan>(&action);
    return use != nullptr ? Result<int>(use->plan) : runtime_error("policy.action", "what?");
  }
  Result<int> make(const std::vector<std::string>& devices, int) override {
    std::string wanted;
    for (const std::string& device : devices)
      if (wanted.size() < most) wanted += device;
    if (wanted.size() < fewest)
      return tl::make_unexpected(Error{ErrorKind::kInfeasible, "plan.memory", "too few"});
    return number_of(wanted);
  }
  Result<int> make_saving(const std::string& device, int) override { return number_of(device); }
  Result<run::Change> make_change(const Transition& transition) override {
    if (transition.from && moves_nothing)
      return runtime_error("synth.move-lost", "nobody has all of w");
    empty = transition.empty;
    run::Change change;
    for (const std::string& device : devices(transition.to))
      change.program.devices.push_back({.device = device});
    return change;
  }
  std::string price(const std::string&) override { return "priced"; }

  int number_of(const std::string& plan) {
    const auto known = std::find(plans.begin(), plans.end(), plan);
    const auto number = known - plans.begin();
    if (known == plans.end()) plans.push_back(plan);
    return static_cast<int>(number);
  }

  std::vector<std::string> plans = {"abc"};
  std::size_t fewest = 1, most = 9;  ///< devices of a plan that it makes
  bool moves_nothing = false;        ///< the tensors of a plan are gone
  std::set<std::string> empty;
};

class Notebook : public Surroundings {
 public:
  void note(const std::string& line) override { notes.push_back(line); }
  void log_plan(policy::Decision decision, int, Begins) override {
    logged.push_back(decision.policy + ": " + decision.choice.why);
  }
  void log_decision(policy::Decision decision) override { logged.push_back(decision.choice.why); }
  void look_ahead() override {}
  void keep_joiner(const std::string& text) override { joiners.push_back(text); }
  Result<std::string> bring_checkpoint() override { return std::string(); }
  run::Recovery open_checkpoint(const std::string& path) override {
    run::Recovery recovery;
    recovery.from = path.empty() ? "new" : path;
    recovery.point.step = path.empty() ? 0 : 2;
    return recovery;
  }

  Words notes, logged, joiners;
};

class Wanting : public policy::Policy {
 public:
  std::string_view name() const override { return "wanting"; }
  std::vector<policy::Choice> observe(const policy::Observation& seen) override {
    if (std::holds_alternative<policy::StepSeen>(seen)) return std::exchange(at_step, {});
    if (std::holds_alternative<policy::LossSeen>(seen)) return std::exchange(at_loss, {});
    if (const auto* refusal = std::get_if<policy::RefusalSeen>(&seen))
      refusals.push_back(refusal->why);
    return {};
  }
  Json state() const override { return {}; }
  Result<void> restore(const Json&, const std::string&) override { return {}; }

  std::vector<policy::Choice> at_step, at_loss;
  Words refusals;
};

/// An event and the orders that follow at once: "halt 1", "change 1 bc at 4". Events: `ready 0`,
/// `step 3`, `lose 1`, `stand 1 H STEP`, `change N STEP`, `refused N`, `stalled 0`, `done 0`,
/// `leads`, `release a`, `take_in a`, `add d`, `wait SECONDS`, `checkpoint STEP`.
struct Line {
  std::string happens;
  Words orders = {};
};

class ControllerTest : public ::testing::Test {
 protected:
  ControllerTest() {
    options_.devices = {"a", "b", "c"};
    options_.is_elastic = true;
    options_.timeout = Seconds(4);
  }

  /// All devices that are not absent train, and have done 3 steps.
  void begin() {
    controller_.emplace(options_, plans_, notebook_);
    for (int process = 0; process < controller_->devices().size(); ++process)
      if (controller_->devices()[process].has_process()) say("ready", process);
    for (std::int64_t step = 0; step < 3; ++step) do_step(step);
  }
  void play(const std::vector<Line>& lines) {
    if (!controller_) begin();
    for (const Line& line : lines) {
      SCOPED_TRACE(line.happens);
      happen(line.happens);
      EXPECT_EQ(orders(), line.orders);
    }
  }

  void say(const std::string& event, int process, Json fields = Json::object()) {
    controller_->on_event({event, process, std::move(fields)}, now_);
  }
  void do_step(std::int64_t step) {
    say("step", 0, {{"step", step}});
    controller_->on_step(step, Seconds(1));
    controller_->observe(policy::StepSeen{.step = step}, step + 1);
  }
  void happen(const std::string& text) {
    std::istringstream words(text);
    std::string what, name;
    int number = 0;
    words >> what;
    if (what == "release" || what == "take_in" || what == "add") {
      words >> name;
      if (what == "add") {
        ASSERT_TRUE(controller_->check_joiner(name));
        controller_->add({.name = name}, "text of " + name);
      }
      const auto done =
          what == "release" ? controller_->release(name, now_) : controller_->take_in(name);
      ASSERT_TRUE(done) << done.error().message;
      return;
    }
    if (what == "wait") {
      double seconds = 0;
      words >> seconds;
      now_ += Seconds(seconds);
      return;
    }
    words >> number;
    if (what == "lose") {
      is_over_ =
          !controller_->on_loss(number, {ErrorKind::kRuntime, "run.worker-lost", "died"}, now_);
    } else if (what == "step") {
      do_step(number);
    } else if (what == "stand") {
      int halt = 0, step = 0;
      words >> halt >> step;
      run::RecoveryState recovery_state = stands_;
      recovery_state.device = controller_->devices()[number].name;
      recovery_state.point.step = step;
      Json said = run::recovery_state_to_json(recovery_state);
      said["halt"] = halt;
      say("halted", number, std::move(said));
    } else if (what == "change" || what == "refused") {
      int step = 0;
      words >> step;
      say(what, controller_->devices().living().front(),
          {{"change", number}, {"step", step}, {"pause_s", 0.25}, {"why", "no memory"}});
    } else if (what == "checkpoint") {
      say(what, 0, {{"step", number}, {"path", "saved"}});
    } else {
      say(what, what == "leads" ? -1 : number);
    }
  }

  Words orders() {
    Words all;
    while (auto order = controller_->next(now_)) {
      all.push_back(order_word(*order));
      if (const auto* change = std::get_if<run::Change>(&*order)) {
        all.back() += " ";
        for (const auto& device : change->program.devices) all.back() += device.device;
        if (change->recovery)
          all.back() +=
              fmt::format(" at {}{}{}", change->recovery->point.step,
                          change->recovery->from.empty() ? "" : " from ", change->recovery->from);
        if (change->recovery && change->recovery->stops) all.back() += " stops";
      }
      if (all.size() > 20) break;
    }
    return all;
  }

  std::string state(int process) const {
    const std::set<std::string> used = plans_.devices(controller_->generations().current());
    return controller_->devices().statuses(used)[static_cast<std::size_t>(process)].state;
  }

  ControllerOptions options_;
  PlanTable plans_;
  Notebook notebook_;
  std::optional<Controller> controller_;
  run::RecoveryState stands_;  // where the halted processes stand
  Seconds now_{100};
  bool is_over_ = false;
};

TEST_F(ControllerTest, ADeviceIsLost) {
  play({{"lose 0", {"halt 1"}},
        {"stand 1 1 3"},
        {"wait 0.4"},
        {"stand 2 1 3", {"change 1 bc at 3"}},
        {"wait 1"},
        {"change 1 3"}});
  ASSERT_EQ(controller_->membership().size(), 1u);
  EXPECT_EQ(controller_->membership()[0].lost, Words{"a"});
  EXPECT_EQ(controller_->membership()[0].pause, now_ - Seconds(100));
  EXPECT_THAT(notebook_.logged, ElementsAre("membership: bc: without a"));
  EXPECT_THAT(notebook_.notes, ElementsAre("a is lost: died", "step 3: bc: without a",
                                           "step 3: a lost; went on after 1.4 s"));
  EXPECT_EQ(state(0), "absent");
  EXPECT_EQ(state(1), "training");
}

TEST_F(ControllerTest, TwoAreLostAtOnce) {
  begin();
  happen("lose 0");
  play({{"lose 2", {"halt 2"}}, {"stand 1 2 3", {"change 1 b at 3"}}, {"change 1 3"}});
  EXPECT_EQ(controller_->membership().at(0).lost, (Words{"a", "c"}));
}

TEST_F(ControllerTest, OneIsLostWhileTheOthersRecover) {
  play({{"lose 0", {"halt 1"}},
        {"stand 1 1 3"},
        {"stand 2 1 3", {"change 1 bc at 3"}},
        {"lose 1", {"halt 2"}}});
  stands_.generation = 1;  // the first change has begun, unreported
  play({{"stand 2 2 3", {"change 2 c at 3"}}, {"change 2 3"}});
  EXPECT_EQ(controller_->generations().running(), 2);
  EXPECT_EQ(controller_->membership().at(0).lost, (Words{"a", "b"}));
}

TEST_F(ControllerTest, ALossThatAPolicyKnowsAPlanFor) {
  Wanting policy;
  options_.policy = &policy;
  plans_.plans = {"abc", "c"};
  policy.at_loss = {{policy::UsePlan{1}, std::nullopt, "alone"}};
  play({{"lose 0", {"halt 1"}}, {"stand 1 1 3"}, {"stand 2 1 3", {"change 1 c at 3"}}});
}

TEST_F(ControllerTest, WithNobodyLeftTheJobEnds) {
  begin();
  for (const char* lost : {"lose 0", "lose 1", "lose 2"}) {
    EXPECT_FALSE(is_over_);
    happen(lost);
  }
  EXPECT_TRUE(is_over_);
}

TEST_F(ControllerTest, AFaultOfTheTrainingIsNoLoss) {
  begin();
  EXPECT_FALSE(controller_->on_loss(1, {ErrorKind::kUsage, "data.label", "label 12"}, now_));
  options_.is_elastic = false;
  begin();
  EXPECT_FALSE(controller_->on_loss(1, {ErrorKind::kRuntime, "run.worker-lost", "died"}, now_));
}

TEST_F(ControllerTest, WhereStateIsGoneTheLastCheckpointIsGoneOnFrom) {
  plans_.moves_nothing = true;
  play({{"checkpoint 2"},
        {"lose 0", {"halt 1"}},
        {"stand 1 1 3"},
        {"stand 2 1 3", {"change 1 bc at 2 from saved"}},
        {"change 1 2"}});
  EXPECT_EQ(controller_->membership().at(0).lost_steps, 1);
  EXPECT_EQ(controller_->steps_done(), 2);
}

TEST_F(ControllerTest, SurvivorsThatCannotGoOnSaveAndStop) {
  plans_.fewest = 3;
  play({{"lose 0", {"halt 1"}}, {"stand 1 1 3"}, {"stand 2 1 3", {"change 1 b at 3 stops"}}});
  EXPECT_THAT(notebook_.notes, Contains("stopping, as those that are left cannot go on: too few"));
}

TEST_F(ControllerTest, ADeviceLeavesThatWasToldTo) {
  play({{"release b", {"change 1 ac"}}});
  EXPECT_EQ(state(1), "leaving");
  play({{"change 1 4", {"kill 1"}}, {"lose 1"}});
  EXPECT_EQ(controller_->membership().at(0).left, Words{"b"});
  EXPECT_EQ(controller_->membership().at(0).pause, Seconds(0.25));
  EXPECT_EQ(state(1), "absent");
}

TEST_F(ControllerTest, WhoIsToLeaveStaysWhereThatIsRefused) {
  play({{"release b", {"change 1 ac"}}, {"refused 1"}});
  EXPECT_EQ(state(1), "training");
}

// A machine is taken back: a notice, then the loss before the change has begun.
TEST_F(ControllerTest, ARentedMachineIsGoneBeforeItHasLeft) {
  play({{"release b", {"change 1 ac"}},
        {"lose 1", {"halt 1"}},
        {"stand 0 1 3"},
        {"stand 2 1 3", {"change 2 ac at 3"}},
        {"change 2 3"}});
  EXPECT_EQ(controller_->membership().at(0).lost, Words{"b"});
  EXPECT_EQ(controller_->membership().at(0).left, Words{});
}

TEST_F(ControllerTest, WhoIsTakenAwayIsBroughtBackOnceItHasEnded) {
  begin();
  controller_->take_away("b");
  controller_->bring_back("b");
  EXPECT_EQ(orders(), Words{"kill 1"});
  play({{"lose 1", {"halt 1", "start 1"}}});
  EXPECT_EQ(state(1), "coming");
}

TEST_F(ControllerTest, ADeviceJoins) {
  options_.absent = {"c"};
  plans_.plans = {"ab"};
  play({{"take_in c", {"start 2"}}, {"ready 2", {"follow 2", "change 1 abc"}}, {"change 1 5"}});
  EXPECT_EQ(controller_->membership().at(0).joined, Words{"c"});
  EXPECT_EQ(controller_->devices()[2].generation, 0);
  EXPECT_EQ(controller_->take_in("c").error().code, "elastic.present");
  EXPECT_EQ(controller_->take_in("z").error().code, "elastic.unknown");
}

TEST_F(ControllerTest, ADeviceThatNoPlanNeedsIsAStandby) {
  options_.absent = {"c"};
  plans_.plans = {"ab"};
  plans_.most = 2;
  play({{"take_in c", {"start 2"}}, {"ready 2", {"follow 2"}}});
  EXPECT_EQ(state(2), "idle");
  play({{"lose 0", {"halt 1"}}, {"stand 1 1 3"}, {"stand 2 1 3", {"change 1 bc at 3"}}});
  EXPECT_EQ(plans_.empty, std::set<std::string>{"c"}) << "it has no tensors yet";
}

TEST_F(ControllerTest, ADeviceDoesNotCome) {
  options_.absent = {"c"};
  plans_.plans = {"ab"};
  play({{"take_in c", {"start 2"}}, {"lose 2"}, {"take_in c", {"start 2"}}});
  EXPECT_THAT(notebook_.notes, ElementsAre("c did not come: died"));
}

TEST_F(ControllerTest, AJoinerIsPricedAndKept) {
  play({{"add d", {"add 3", "start 3"}}, {"ready 3", {"follow 3", "change 1 abcd"}}});
  EXPECT_EQ(notebook_.joiners, Words{});
  play({{"change 1 4"}});
  EXPECT_EQ(notebook_.joiners, Words{"text of d"});
  EXPECT_EQ(controller_->check_joiner("d").error().code, "elastic.taken");
}

TEST_F(ControllerTest, WhatAPolicyWantsBeginsOrIsRefused) {
  Wanting policy;
  options_.policy = &policy;
  plans_.plans = {"abc", "ab"};
  begin();
  policy.at_step = {{policy::UsePlan{1}, Seconds(0.5), "quicker"}};
  play({{"step 3", {"change 1 ab"}}, {"refused 1"}});
  EXPECT_EQ(policy.refusals, Words{"no memory"});
  EXPECT_EQ(controller_->generations().current(), 0);
  policy.at_step = {{policy::UsePlan{1}, Seconds(0.5), "quicker"}};
  play({{"step 4", {"change 2 ab"}}, {"change 2 7"}});
  EXPECT_EQ(controller_->generations().current(), 1);
  EXPECT_THAT(notebook_.logged, ElementsAre("wanting: ab: quicker"));
  policy.at_step = {{policy::UsePlan{1}, std::nullopt, "best"},
                    {policy::MeasureNoise{4}, std::nullopt, "steady"},
                    {policy::Save{}, std::nullopt, "now"}};
  play({{"step 7", {"count 4"}}});
  EXPECT_THAT(notebook_.notes, Contains("step 8: goes on, ab: best"));
  EXPECT_THAT(notebook_.notes, Contains("not possible: what?"));
}

TEST_F(ControllerTest, StandbysKnowOfAChangeBeforeWorkersDo) {
  options_.has_standbys = true;
  play({{"step 3", {"leave"}},
        {"release b", {"leave", "change 1 ac"}},
        {"change 1 4", {"kill 1"}},
        {"lose 1"},
        {"lose 0", {"halt 1"}},
        {"stand 2 1 4", {"leave"}},
        {"leads", {"leave", "change 2 c at 4"}}});
}

TEST_F(ControllerTest, WhoIsCutOffFromTheOthersSavesAndStops) {
  options_.has_standbys = true;
  play({{"step 3", {"leave"}},
        {"lose 0", {"halt 1"}},
        {"stand 1 1 4"},
        {"stand 2 1 4", {"leave"}},
        {"wait 2.1", {"leave", "change 1 b at 4 stops"}}});
}

// The former coordinator is lost with device a. Generation 2 or 3 runs.
TEST_F(ControllerTest, TheCoordinatorIsLost) {
  options_.absent = {"a"};
  plans_.plans = {"ab", "abc"};
  options_.takeover = Takeover{.plans = {{2, 0}, {3, 1}},
                               .living = {"a", "b", "c"},
                               .halts = 50,
                               .alone = Seconds(2),
                               .done = 7};
  controller_.emplace(options_, plans_, notebook_);
  EXPECT_EQ(controller_->steps_done(), 7);
  for (const int process : {1, 2}) say("ready", process);
  EXPECT_EQ(orders(), Words{"halt 51"});
  stands_.generation = 3;
  play({{"stand 1 51 7"}, {"stand 2 51 7", {"change 4 bc at 7"}}, {"change 4 7"}});
  EXPECT_THAT(notebook_.notes, Contains("this host leads on: a lost"));
  EXPECT_EQ(controller_->membership().at(0).pause, Seconds(2));
}

TEST_F(ControllerTest, AWayBackThatOnlyTheOldLeadHasEndsTheJob) {
  options_.absent = {"a"};
  options_.takeover = Takeover{.plans = {{0, 0}}, .living = {"a"}, .saved_step = 4};
  plans_.moves_nothing = true;
  controller_.emplace(options_, plans_, notebook_);
  for (const int process : {1, 2}) say("ready", process);
  EXPECT_EQ(orders(), Words{"halt 1"});
  play({{"stand 1 1 7"}, {"stand 2 1 7", {"kill 1", "kill 2"}}});
  ASSERT_TRUE(controller_->fault());
  EXPECT_EQ(controller_->fault()->code, "elastic.checkpoint");
}

}  // namespace
}  // namespace motley::job
