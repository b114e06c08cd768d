#include "motley/control/planning/measuring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/control/planning/planning.h"
#include "motley/cost/measured/whole_step.h"
#include "motley/cost/profile_cost.h"
#include "motley/testing/fake_outside.h"
#include "motley/testing/small_inputs.h"

namespace motley::control {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::SizeIs;
using Setting = OperatorTask::Setting;

const DeviceId kA(0), kB(1), kC(2);

TEST(FindTasks, DevicesOfOneKeyAreTimedOnceAloneAndOnceShared) {
  const Inputs inputs = small_inputs(kTwoCpus, 8);
  const MeasuringTasks tasks = find_tasks(inputs, "2.15").value();
  // 1, 2, 4, ... up to the whole batch of 8, which one device may get.
  EXPECT_THAT(tasks.batches, ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(tasks.operators,
              ElementsAre(OperatorTask{kA, Setting::kAlone, {"cpu", 1, "2.15"}},
                          OperatorTask{kA, Setting::kShared, {"cpu beside 1", 1, "2.15"}}));
  EXPECT_THAT(tasks.paces, IsEmpty());
  EXPECT_THAT(tasks.groups, ElementsAre(ElementsAre(kA, kB)));
}

TEST(FindTasks, EmulatedDevicesOfOneMachineArePacedTogether) {
  const Inputs inputs = small_inputs(kEmulated, 14);
  const MeasuringTasks tasks = find_tasks(inputs, "2.15").value();
  EXPECT_THAT(tasks.operators, SizeIs(2));
  ASSERT_THAT(tasks.paces, SizeIs(1));
  EXPECT_THAT(tasks.paces[0].devices, ElementsAre(kA, kB, kC));
  // 14 samples by the speeds .8 : .4 : .2 are 8 : 4 : 2; equal samples are 14 / 3 = 4.
  EXPECT_THAT(tasks.paces[0].samples, ElementsAre(ElementsAre(4, 4, 4), ElementsAre(8, 4, 2)));
  // The smallest and largest group of the only route; sizes between them are interpolated.
  EXPECT_THAT(tasks.groups, ElementsAre(ElementsAre(kA, kB), ElementsAre(kA, kB, kC)));
}

TEST(FindTasks, AKindThatIsNotHereIsRefusedBeforeAnythingIsMeasured) {
  const auto tasks = find_tasks(small_inputs(kOneIsFar, 8), "2.15");
  ASSERT_FALSE(tasks);
  EXPECT_EQ(tasks.error().message,
            "device b:0 of kind rtx4090 is not on this machine and cannot be measured here; leave "
            "it out with --exclude b:0");
  Inputs without = small_inputs(kOneIsFar, 8);
  without.devices = {kA};
  EXPECT_THAT(find_tasks(without, "2.15")->groups, IsEmpty());
}

class MeasuringTest : public ::testing::Test {
 protected:
  cost::ProfileStore store_ = cost::ProfileStore::open(":memory:").value();
  FakeWorkers workers_;
  FakeClock clock_;
  RecordingListener listener_;
  const Outside outside_{workers_, clock_, listener_};
};

TEST_F(MeasuringTest, AllTasksAreDoneAndToldInOrder) {
  const Inputs inputs = small_inputs(kTwoCpus, 8);
  const auto kept = measure(inputs, 1, store_, outside_);
  ASSERT_TRUE(kept) << kept.error().message;
  ASSERT_THAT(listener_.notes, SizeIs(3));
  EXPECT_THAT(listener_.notes[0],
              MatchesRegex("profile: [0-9]+ operators on cpu with 1 thread, batches 1 to 8"));
  EXPECT_THAT(
      listener_.notes[1],
      MatchesRegex("profile: [0-9]+ operators on cpu beside 1 with 1 thread, batches 1 to 8"));
  EXPECT_EQ(listener_.notes[2], "profile: exchanges among 2 devices (local)");
  ASSERT_THAT(workers_.groups, SizeIs(1));
  EXPECT_THAT(workers_.groups[0].devices, SizeIs(2));
  EXPECT_EQ(kept->spread, 0);
  EXPECT_THAT(store_.batches(profile_subject(inputs), {"cpu", 1, "2.15"}).value(),
              ElementsAre(1, 2, 4, 8));
}

TEST_F(MeasuringTest, NeighboursWorkBesideWhoIsTimedInTheSharedSetting) {
  ASSERT_TRUE(measure(small_inputs(kTwoCpus, 8), 3, store_, outside_));
  // Three rounds. Alone: one worker; shared: one per device, if there are processors.
  const std::size_t a_round = workers_.timed.size() / 3;
  ASSERT_EQ(workers_.timed.size(), 3 * a_round);
  ASSERT_THAT(a_round, AnyOf(2U, 3U));
  for (std::size_t i = 0; i < workers_.timed.size(); ++i) {
    EXPECT_EQ(workers_.timed[i].programs[0].program->devices.size(), i % a_round == 0 ? 1U : 2U);
    EXPECT_EQ(workers_.timed[i].device.name, "a:0");
  }
}

TEST_F(MeasuringTest, WholeStepsAreTimedAtTheDevicesSpeeds) {
  const Inputs inputs = small_inputs(kEmulated, 14);
  ASSERT_TRUE(measure(inputs, 1, store_, outside_));
  std::vector<double> speeds;
  for (const TimingTask& task : workers_.timed)
    if (task.what == TimingTask::What::kWholeSteps) speeds.push_back(task.device.speed);
  ASSERT_THAT(speeds, SizeIs(6));
  for (std::size_t i = 0; i < speeds.size(); i += 3)
    EXPECT_THAT(std::vector(speeds.begin() + i, speeds.begin() + i + 3),
                ElementsAre(0.8, 0.4, 0.2));
  // The fake's step takes its instructions' time over the speed, so the pace is the speed.
  for (const DeviceId id : inputs.devices) {
    const auto key = cost::emulated_key(inputs.cluster, id, "2.15");
    const auto pace = cost::usual_pace(store_, key);
    ASSERT_TRUE(pace && *pace);
    EXPECT_NEAR(**pace, inputs.cluster.device(id).speed, 1e-9);
    EXPECT_EQ(cost::find_pause(store_, key, profile_subject(inputs))->value,
              60e-6 / inputs.cluster.device(id).speed);
  }
}

constexpr const char* kThreeMachines = R"(schema = "motley.cluster/1"
name = "three"
[[node]]
name = "a"
  [[node.device]]
  kind = "cpu"
[[node]]
name = "b"
host = "b.example"
  [[node.device]]
  kind = "cpu"
  model = "other"
  quota = 0.4
[[node]]
name = "c"
host = "c.example"
  [[node.device]]
  kind = "cpu"
  model = "third"
  quota = 0.2
[[link]]
all = true
bandwidth = "1Gbps"
)";

TEST_F(MeasuringTest, MachinesAreMeasuredAtTheSameTime) {
  ASSERT_TRUE(measure(small_inputs(kThreeMachines, 8), 1, store_, outside_));
  // Operators of all three alone, then shared; then whole steps of the two emulated ones, twice.
  EXPECT_THAT(workers_.calls, ElementsAre(3, 3, 2, 2));
  EXPECT_THAT(
      listener_.notes,
      Contains("profile: operators on this machine, b.example, c.example at the same time"));
  EXPECT_THAT(listener_.notes,
              Contains("profile: whole steps on b.example, c.example at the same time"));
}

TEST_F(MeasuringTest, DevicesOfOneMachineAreMeasuredInTurn) {
  ASSERT_TRUE(measure(small_inputs(kEmulated, 14), 1, store_, outside_));
  // One key alone; shared with each neighbour; then its whole steps at two splits.
  ASSERT_THAT(workers_.calls, SizeIs(4));
  EXPECT_EQ(workers_.calls[0], 1U);
  EXPECT_THAT(listener_.notes, Not(Contains(HasSubstr("at the same time"))));
}

TEST_F(MeasuringTest, WhatAPlanSplitsIsMeasuredOnce) {
  const Inputs inputs = small_inputs(kTwoCpus, 8);
  ASSERT_TRUE(measure(inputs, 1, store_, outside_));
  const auto costs = [&] {
    return search::load_costs(*inputs.model, inputs.cluster, store_,
                              {.lowering = inputs.lowering,
                               .torch = "2.15",
                               .global_batch = inputs.global_batch,
                               .devices = inputs.devices})
        .value();
  };
  plan::Plan plan{.model_hash = inputs.model->hash,
                  .cluster_hash = cluster::cluster_hash(inputs.cluster),
                  .global_batch = 8,
                  .replicas = plan::make_replicas(inputs.devices, {5, 3})};
  listener_.notes.clear();
  workers_.timed.clear();
  const auto program_of = [&] { return lower_plan(inputs, plan).value().program; };
  EXPECT_EQ(measure_plan(inputs, program_of(), costs(), 3, store_, outside_).value(),
            Learned::kNothing);
  EXPECT_THAT(workers_.timed, IsEmpty());
  // Products of 8 samples are on the measured curves; the exchanges' work is not.
  plan::Region region{.devices = inputs.devices, .shares = {5, 3}};
  region.operators.resize(inputs.graph().ops.size());
  plan.replicas = {{8, {region}}};
  const auto first = measure_plan(inputs, program_of(), costs(), 3, store_, outside_);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(*first, Learned::kSomething);
  EXPECT_THAT(listener_.notes,
              ElementsAre("profile: parts of operators as the plan splits them, on cpu beside 1"));
  // Both devices have one key, so one worker times both programs.
  EXPECT_THAT(workers_.timed[0].programs, SizeIs(2));
  const std::size_t asked = workers_.timed.size();
  EXPECT_EQ(measure_plan(inputs, program_of(), costs(), 3, store_, outside_).value(),
            Learned::kNothing);
  EXPECT_EQ(workers_.timed.size(), asked);
}

TEST_F(MeasuringTest, WithoutWorkersNothingIsMeasured) {
  workers_.torch = usage_error("worker.missing", "motley-worker: not there");
  const auto kept = measure(small_inputs(kTwoCpus, 8), 3, store_, outside_);
  ASSERT_FALSE(kept);
  EXPECT_EQ(kept.error().code, "worker.missing");
  EXPECT_THAT(workers_.timed, IsEmpty());
}

TEST_F(MeasuringTest, DriftIsNamedByOperatorAndKind) {
  const Inputs inputs = small_inputs(kTwoCpus, 8);
  EXPECT_THAT(find_drifted(inputs, "2.15", store_).value(), IsEmpty());
  // The newest two rounds agree, and are far from the four before.
  for (const double seconds : {1.0, 1.0, 1.0, 1.0, 2.0, 2.0}) {
    const cost::OpEntry entry{
        .device = {"cpu", 1, "2.15"}, .key = "aten::mm", .median = Seconds(seconds), .samples = 9};
    ASSERT_TRUE(store_.put(std::vector{entry}));
  }
  EXPECT_THAT(find_drifted(inputs, "2.15", store_).value(), ElementsAre("aten::mm on cpu"));
}

}  // namespace
}  // namespace motley::control
