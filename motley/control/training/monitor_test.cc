#include "motley/control/training/monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "motley/base/file.h"
#include "motley/base/text.h"
#include "motley/testing/fake_outside.h"
#include "motley/testing/small_inputs.h"

namespace motley::control {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

run::WorkerEvent ready(std::int64_t first_step, const std::string& note = "") {
  return {"ready", 0, {{"first_step", first_step}, {"note", note}}};
}

class MonitorTest : public ::testing::Test {
 protected:
  MonitorTest() { std::filesystem::create_directories(directory_.path); }
  Monitor open(Log earlier = {}) {
    Monitor monitor({.devices = {"a:0", "b:0"}, .steps = 10, .global_batch = 8}, clock_, listener_);
    EXPECT_TRUE(monitor.open(directory_, std::move(earlier)));
    return monitor;
  }

  TemporaryDirectory temporary_;
  RunDirectory directory_{temporary_.file("run")};
  FakeClock clock_;
  RecordingListener listener_;
};

TEST_F(MonitorTest, AStepIsDoneWhenEveryRankHasReportedIt) {
  Monitor monitor = open();
  monitor.on_event(ready(0));
  monitor.on_event(step_event(1, 0, 0.3, 0.2));
  EXPECT_THAT(listener_.steps, IsEmpty());
  monitor.on_event(step_event(0, 0, 0.4, 0.4, 2.5));
  ASSERT_THAT(listener_.steps, SizeIs(1));
  const LoggedStep& logged = listener_.steps[0].logged;
  EXPECT_EQ(logged.step_s, 0.4);
  EXPECT_EQ(logged.loss, 2.5);
  EXPECT_THAT(logged.compute_s, ElementsAre(0.4, 0.2));
  EXPECT_THAT(logged.peak_bytes, ElementsAre(1000, 2000));
}

// Rank 1 dies before it reports step 1, which the last checkpoint covers; nobody completes step 2.
TEST_F(MonitorTest, AStepThatACheckpointHasIsLoggedWithoutTheRankThatIsGone) {
  Monitor monitor = open();
  monitor.on_event(ready(0));
  for (const int rank : {0, 1}) monitor.on_event(step_event(rank, 0, 0.4, 0.1, 2.5));
  monitor.on_event(step_event(0, 1, 0.4, 0.1, 2.25));
  monitor.on_event({"checkpoint", 0, {{"step", 2}, {"path", "p"}}});
  monitor.on_event(step_event(0, 2, 0.4, 0.1, 2.0));
  monitor.end();
  EXPECT_THAT(monitor.result().losses, ElementsAre(2.5, 2.25));
  ASSERT_THAT(listener_.steps, SizeIs(2));
  EXPECT_THAT(listener_.steps[1].logged.compute_s, ElementsAre(0.1, 0.0));
}

TEST_F(MonitorTest, TheMedianLeavesOutTheFirstStep) {
  Monitor monitor = open();
  monitor.on_event(ready(0));
  const double seconds[] = {9.0, 0.2, 0.4, 0.3};
  for (std::int64_t step = 0; step < 4; ++step)
    for (const int rank : {0, 1}) monitor.on_event(step_event(rank, step, seconds[step], 0.1));
  const Measured measured = monitor.result();
  EXPECT_DOUBLE_EQ(measured.step.value, 0.3);  // of .2 .3 .4
  EXPECT_THAT(measured.losses, SizeIs(4));
  // Both ranks computed .1 s in each step, and the steps took 9 + .2 + .4 + .3 = 9.9 s.
  EXPECT_THAT(measured.busy,
              ElementsAre(DoubleNear(0.4 / 9.9, 1e-12), DoubleNear(0.4 / 9.9, 1e-12)));
  EXPECT_THAT(measured.peak_bytes, ElementsAre(1000, 2000));
}

TEST_F(MonitorTest, WaitingForDataIsNotedOnceWithWhatWouldDo) {
  Monitor monitor = open();
  monitor.on_event(ready(0));
  for (std::int64_t step = 0; step < 30; ++step)
    for (const int rank : {0, 1}) {
      run::WorkerEvent event = step_event(rank, step, 1.0, rank == 0 ? 0.2 : 0.1);
      event.fields["data_s"] = rank == 0 ? 0.3 : 0.5;
      event.fields["loading_s"] = rank == 0 ? 0.9 : 0.0;  // rank 0 loads for both
      event.fields["loaders"] = rank == 0 ? 2 : 0;
      monitor.on_event(event);
    }
  const Waiting waiting = monitor.result().waiting;
  EXPECT_DOUBLE_EQ(waiting.share, 0.5);  // rank 1's
  EXPECT_EQ(waiting.processes, 2);
  EXPECT_EQ(waiting.wanted, 5);  // 0.9 s of loading while the busiest device computes for 0.2 s
  EXPECT_THAT(
      listener_.notes,
      ElementsAre("waiting for data 50% of the time: 5 loading processes a machine would do "
                  "(--loaders 5), on as many cores"));
  EXPECT_EQ(print_waiting({0.1, 4, 3}),
            "waiting for data 10% of the time: loading takes no more than the work of 4 processes, "
            "but these share cores with the devices");
}

TEST_F(MonitorTest, TheUsualStepIsOfTheLastTwenty) {
  Monitor monitor = open();
  monitor.on_event(ready(0));
  // Step 0 does not count. Of the last 20 steps, nine take 1 s and eleven 2 s.
  for (std::int64_t step = 0; step <= 31; ++step)
    for (const int rank : {0, 1})
      monitor.on_event(step_event(rank, step, step <= 20 ? 1.0 : 2.0, 0.1));
  EXPECT_EQ(listener_.steps[20].usual.value, 1.0);
  EXPECT_EQ(listener_.steps[31].usual.value, 2.0);
}

TEST_F(MonitorTest, StepsDoneAgainReplaceTheEarlierOnes) {
  Log earlier;
  for (std::int64_t step = 0; step < 5; ++step) earlier.steps[step].loss = 10.0 + step;
  Monitor monitor = open(earlier);
  // The last checkpoint was after step 2, so steps 3 and 4 are lost.
  monitor.on_event(ready(3));
  EXPECT_THAT(listener_.notes, ElementsAre("resume from step 3, 2 steps are done again"));
  for (const int rank : {0, 1}) monitor.on_event(step_event(rank, 3, 0.1, 0.1, 7.0));
  const Measured measured = monitor.result();
  EXPECT_EQ(measured.first_step, 3);
  EXPECT_EQ(measured.lost_steps, 2);
  EXPECT_THAT(measured.losses, ElementsAre(10, 11, 12, 7));
  EXPECT_EQ(measured.step.value, 0);  // a call's first step does not count
}

TEST_F(MonitorTest, ARunThatGoesOnWhereItStoppedLosesNothing) {
  Log earlier;
  for (std::int64_t step = 0; step < 5; ++step) earlier.steps[step].loss = 1;
  Monitor monitor = open(earlier);
  monitor.on_event(ready(5, "2 threads"));
  EXPECT_THAT(listener_.notes, ElementsAre("resume from step 5", "2 threads"));
  EXPECT_EQ(monitor.result().lost_steps, 0);
}

TEST_F(MonitorTest, EachStepIsALineOfTheLogAsItIsDone) {
  Monitor monitor = open();
  monitor.on_event(ready(0));
  for (std::int64_t step = 0; step < 2; ++step)
    for (const int rank : {0, 1}) monitor.on_event(step_event(rank, step, 0.1, 0.1, 0.5 + step));
  const auto log = read_log(directory_).value().steps;
  ASSERT_THAT(log, SizeIs(2));
  EXPECT_EQ(log.at(1).loss, 1.5);
  EXPECT_THAT(log.at(1).compute_s, ElementsAre(0.1, 0.1));
}

TEST_F(MonitorTest, TheListenersWishIsHeardUntilTheEnd) {
  listener_.stop_after = 1;
  Monitor monitor = open();
  EXPECT_EQ(monitor.on_event(ready(0)), Wish::kGoOn);
  for (std::int64_t step = 0; step < 3; ++step) {
    EXPECT_EQ(monitor.on_event(step_event(0, step, 0.1, 0.1)),
              step < 2 ? Wish::kGoOn : Wish::kStop);
    EXPECT_EQ(monitor.on_event(step_event(1, step, 0.1, 0.1)),
              step < 1 ? Wish::kGoOn : Wish::kStop);
  }
}

TEST_F(MonitorTest, ALossThatIsNotSaidIsNoNumber) {
  Monitor monitor = open();
  run::WorkerEvent event = step_event(0, 0, 0.1, 0.1);
  event.fields.erase("loss");
  monitor.on_event(event);
  monitor.on_event(step_event(1, 0, 0.1, 0.1));
  EXPECT_TRUE(std::isnan(listener_.steps.at(0).logged.loss));
}

TEST_F(MonitorTest, RanksThatDoNotReportHereAreLeftOut) {
  Monitor monitor({.devices = {"a:0"}, .steps = 10}, clock_, listener_);
  ASSERT_TRUE(monitor.open(directory_, {}));
  monitor.on_event(step_event(1, 0, 0.1, 0.1));
  EXPECT_THAT(listener_.steps, IsEmpty());
  monitor.on_event(step_event(0, 0, 0.1, 0.1));
  EXPECT_THAT(listener_.steps, SizeIs(1));
}

TEST_F(MonitorTest, ALogThatCannotBeWrittenIsSaidBeforeTheRun) {
  Monitor monitor({.devices = {"a:0"}}, clock_, listener_);
  const auto opened = monitor.open({"/nowhere/run"}, {});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().message, "/nowhere/run/log.jsonl: cannot be written");
}

}  // namespace
}  // namespace motley::control
