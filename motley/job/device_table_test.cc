#include "motley/job/device_table.h"

#include <gmock/gmock.h>

namespace motley::job {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

using Step = void (*)(DeviceTable&);

DeviceTable in(Life life) {
  DeviceTable devices({"d"}, {"d"});
  if (life != Life::kAbsent) devices.start(0);
  if (life == Life::kWorking || life == Life::kLeaving) devices.become_ready(0);
  if (life == Life::kLeaving) devices.leave(0);
  if (life == Life::kDismissed) devices.dismiss(0);
  if (life == Life::kDone) devices.finish(0);
  EXPECT_EQ(devices[0].life, life);
  return devices;
}

struct Row {
  const char* what;
  Step step;
  /// Life after the step, by the life before.
  Life absent, joining, working, leaving, dismissed, done;
};

// All lives and all events, except `leave`, which requires a living device.
TEST(DeviceTable, EachLifeGoesOnAsTheTableSays) {
  using enum Life;
  const std::vector<Row> rows = {
      {"start", [](DeviceTable& t) { t.start(0); },  //
       kJoining, kJoining, kWorking, kLeaving, kDismissed, kDone},
      {"ready", [](DeviceTable& t) { t.become_ready(0); },  //
       kAbsent, kWorking, kWorking, kLeaving, kDismissed, kDone},
      {"stay", [](DeviceTable& t) { t.stay(); },  //
       kAbsent, kJoining, kWorking, kWorking, kDismissed, kDone},
      {"dismiss", [](DeviceTable& t) { t.dismiss(0); },  //
       kAbsent, kDismissed, kDismissed, kDismissed, kDismissed, kDismissed},
      {"finish", [](DeviceTable& t) { t.finish(0); },  //
       kAbsent, kDone, kDone, kDone, kDismissed, kDone},
      {"lose", [](DeviceTable& t) { t.lose(0); },  //
       kAbsent, kAbsent, kAbsent, kAbsent, kAbsent, kAbsent},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.what);
    const std::vector<std::pair<Life, Life>> becomes = {
        {kAbsent, row.absent},   {kJoining, row.joining},     {kWorking, row.working},
        {kLeaving, row.leaving}, {kDismissed, row.dismissed}, {kDone, row.done}};
    for (const auto& [from, to] : becomes) {
      DeviceTable devices = in(from);
      row.step(devices);
      EXPECT_EQ(devices[0].life, to) << "from " << static_cast<int>(from);
    }
  }
}

TEST(DeviceTable, WhoIsThereFromTheFirstHasNotRejoined) {
  DeviceTable devices({"a", "b"}, {"b"});
  EXPECT_EQ(devices[0].life, Life::kJoining);
  EXPECT_FALSE(devices.start(0));
  EXPECT_TRUE(devices.start(1));
  EXPECT_FALSE(devices[0].has_rejoined);
  EXPECT_TRUE(devices[1].has_rejoined);
  EXPECT_TRUE(devices.become_ready(0));
  EXPECT_THAT(devices.living(), ElementsAre(0));
  EXPECT_TRUE(devices.lives("a"));
  EXPECT_FALSE(devices.lives("b"));
  EXPECT_FALSE(devices.lives("c"));
}

TEST(DeviceTable, WithAProcessGoesWhatItKnew) {
  DeviceTable devices({"a"}, {});
  devices.become_ready(0);
  devices[0].was_told = devices[0].awaits_plan = devices[0].awaits_generation = true;
  devices[0].generation = 3;
  EXPECT_EQ(devices.lose(0), Life::kWorking);
  EXPECT_FALSE(devices[0].was_told || devices[0].awaits_plan || devices[0].awaits_generation);
  EXPECT_EQ(devices[0].generation, 3);
}

TEST(DeviceTable, ADeviceOfThatNameIsAddedOnce) {
  DeviceTable devices({"a"}, {});
  EXPECT_EQ(devices.add("b"), 1);
  EXPECT_EQ(devices.add("b"), 1);
  EXPECT_EQ(devices.size(), 2);
  EXPECT_EQ(devices[1].life, Life::kAbsent);
  EXPECT_EQ(devices.find("b"), 1);
  EXPECT_EQ(devices.find("c"), std::nullopt);
}

TEST(DeviceTable, WhoLeavesOrHasNoPriceIsNoPartOfPlans) {
  DeviceTable devices({"b", "a"}, {});
  for (const int process : {0, 1}) devices.become_ready(process);
  EXPECT_TRUE(devices[0].stays());
  devices.leave(0);
  EXPECT_FALSE(devices[0].stays());
  devices.stay(0);
  EXPECT_TRUE(devices[0].stays());
  devices[1].is_priced = false;
  EXPECT_FALSE(devices[1].stays());
  EXPECT_THAT(devices.where([](const DeviceState&) { return true; }),
              ElementsAre(Pair("a", 1), Pair("b", 0)));
}

TEST(DeviceTable, PeopleAreToldAWordOfEach) {
  const auto word = [](DeviceTable devices, bool is_used) {
    return devices.statuses(is_used ? std::set<std::string>{"d"} : std::set<std::string>())[0]
        .state;
  };
  EXPECT_EQ(word(in(Life::kAbsent), true), "absent");
  EXPECT_EQ(word(in(Life::kJoining), false), "coming");
  EXPECT_EQ(word(in(Life::kWorking), true), "training");
  EXPECT_EQ(word(in(Life::kWorking), false), "idle");
  EXPECT_EQ(word(in(Life::kLeaving), true), "leaving");
  DeviceTable devices = in(Life::kWorking);
  devices[0].awaits_plan = true;
  EXPECT_EQ(word(devices, false), "coming");
  devices[0].text = "[[node]]";
  devices[0].why = Error{ErrorKind::kRuntime, "x", "no route"};
  const DeviceStatus status = devices.statuses({})[0];
  EXPECT_FALSE(status.has_come);
  EXPECT_EQ(status.why->message, "no route");
}

}  // namespace
}  // namespace motley::job
