#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <span>
#include <thread>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/control/planning/placing.h"
#include "motley/control/training/adapting.h"
#include "motley/control/training/decision_log.h"
#include "motley/control/training/joiner.h"
#include "motley/control/training/requests.h"
#include "motley/control/training/training.h"
#include "motley/run/checkpoints/checkpoint.h"
#include "motley/run/hosts/control_socket.h"
#include "motley/testing/fake_outside.h"
#include "motley/testing/order_words.h"
#include "motley/testing/small_inputs.h"

namespace motley::control {
namespace {

using ::testing::HasSubstr;
using Names = std::vector<std::string>;

class SetClock : public Clock {
 public:
  Seconds steady() const override { return now; }
  Seconds calendar() const override { return Seconds(1e9); }
  Seconds now{1000};
};

Error lost_worker(const std::string& why) { return {ErrorKind::kRuntime, "run.worker-lost", why}; }

/// Three devices that split a batch of 8 as 4:2:2; changes split it evenly.
class ElasticTest : public ::testing::Test {
 protected:
  ElasticTest() : inputs_(small_inputs(kEmulated, 8)), adaptation_(std::make_shared<Adaptation>()) {
    EXPECT_TRUE(write_mlp_data(temporary_.file("data.safetensors")));
    choices_.data.path = temporary_.file("data.safetensors");
    choices_.run_dir = temporary_.file("run");
    choices_.steps = 20;
    choices_.trace_steps = 0;
    choices_.timeout = Seconds(4);
    adaptation_->version = "v1";
    adaptation_->replan = [this](const std::vector<DeviceId>& devices, const BatchNow& batch) {
      return replan(devices, batch);
    };
  }

  plan::Plan split(const std::vector<DeviceId>& devices,
                   const std::vector<std::int64_t>& samples) const {
    return {.model_hash = inputs_.model->hash,
            .cluster_hash = cluster::cluster_hash(inputs_.cluster),
            .global_batch = 8,
            .replicas = plan::make_replicas(devices, samples)};
  }

  Result<Candidate> replan(const std::vector<DeviceId>& devices, const BatchNow& batch) {
    replanned_.push_back(devices.size());
    if (devices.size() < fewest_)
      return tl::make_unexpected(Error{ErrorKind::kInfeasible, "plan.memory", "these are too few"});
    std::vector<DeviceId> used = ignores_ ? inputs_.devices : devices;
    if (used.size() > most_) used.resize(most_);
    const auto count = static_cast<std::int64_t>(used.size());
    std::vector<std::int64_t> samples(used.size(), batch.samples / count);
    samples[0] += batch.samples % count;
    Candidate made;
    made.planned.plan = split(used, samples);
    made.planned.plan.global_batch = batch.samples;
    made.lr_factor = batch.lr_factor;
    made.label = describe_plan(made.planned.plan, inputs_.cluster);
    return made;
  }

  /// All processes except absent ones are ready and have done `steps` steps.
  void begin(std::int64_t steps = 3) {
    if (adaptation_->candidates.empty())
      adaptation_->candidates.push_back(
          {"first", lower_plan(inputs_, split(inputs_.devices, {4, 2, 2})).value()});
    auto prepared =
        prepare_run(inputs_, adaptation_->candidates[0].planned, nullptr, choices_, adaptation_);
    ASSERT_TRUE(prepared) << prepared.error().message;
    prepared_.emplace(std::move(*prepared));
    adapting_.emplace(*adaptation_, inputs_, prepared_->directory, prepared_->job, clock_,
                      listener_);
    ASSERT_TRUE(adapting_->open());
    for (int process = 0; process < 3; ++process) {
      const auto& absent = adaptation_->absent;
      if (std::count(absent.begin(), absent.end(), name(process)) > 0) continue;
      say("ready", process, {{"first_step", 0}, {"leads", process == 0}});
    }
    for (std::int64_t step = 0; step < steps; ++step) do_step(step, 0);
    EXPECT_EQ(orders(), adaptation_->standby_state.is_null() ? Names{} : Names{"leave"});
  }

  std::string name(int process) const { return inputs_.cluster.device(DeviceId(process)).name; }
  void say(const char* event, int process, Json fields = Json::object()) {
    adapting_->on_event({event, process, std::move(fields)});
  }
  void do_step(std::int64_t step, int generation, int lead = 0) {
    adapting_->on_event(step_event(lead, step, 1.0, 0.5));
    StepReport report{.step = step, .steps = 20};
    report.logged.step_s = 1.0;
    report.logged.generation = generation;
    adapting_->step(report);
  }
  void stand(int process, int halt, run::RecoveryState recovery_state) {
    recovery_state.device = name(process);
    Json said = run::recovery_state_to_json(recovery_state);
    said["halt"] = halt;
    say("halted", process, std::move(said));
  }
  bool lose(int process, const char* why = "it is dead") {
    return adapting_->on_loss(process, lost_worker(why));
  }
  void change_begins(int process, int number, std::int64_t step) {
    say("change", process, {{"change", number}, {"step", step}, {"pause_s", 0.25}});
  }

  Names orders() {
    Names all;
    while (auto order = adapting_->next_order()) {
      if (!std::holds_alternative<job::Follow>(*order)) all.push_back(order_word(*order));
      if (auto* change = std::get_if<run::Change>(&*order)) change_ = std::move(*change);
      if (all.size() > 20) break;
    }
    return all;
  }
  static Names devices_in(const program::Program& program) {
    Names names;
    for (const program::DeviceProgram& device : program.devices) names.push_back(device.device);
    return names;
  }
  std::string state(int process) const {
    return adapting_->device_states()[static_cast<std::size_t>(process)].state;
  }
  std::string notes() const {
    std::string all;
    for (const std::string& note : listener_.notes) all += note + "\n";
    return all;
  }
  std::int64_t samples_of(int process) const {
    for (const plan::Member& member : plan::members(adapting_->current().planned.plan))
      if (member.device == DeviceId(process)) return member.samples;
    return 0;
  }

  TemporaryDirectory temporary_;
  Inputs inputs_;
  std::shared_ptr<Adaptation> adaptation_;
  TrainChoices choices_;
  SetClock clock_;
  RecordingListener listener_;
  std::optional<PreparedRun> prepared_;
  std::optional<Adapting> adapting_;
  run::Change change_;
  std::vector<std::size_t> replanned_;
  std::size_t fewest_ = 1, most_ = 3;  // devices of a plan
  bool ignores_ = false;               // plans ignore which devices are there
};

TEST_F(ElasticTest, ALossIsRecoveredFromByThoseThatAreLeft) {
  begin();
  clock_.now += Seconds(10);
  ASSERT_TRUE(lose(0));
  EXPECT_EQ(orders(), Names{"halt 1"});
  EXPECT_EQ(orders(), Names{});
  // 1 has the sum of step 3; 2 could complete the step.
  stand(1, 1, {.point = {.step = 4, .evaluated_step = -1}});
  EXPECT_EQ(orders(), Names{});
  stand(2, 1, {.is_open = true, .may_end = true, .point = {.step = 3}});
  EXPECT_EQ(orders(), Names{"change 1"});
  EXPECT_EQ(change_.after, 0);
  EXPECT_EQ(change_.processes, (std::vector<int>{1, 2}));
  ASSERT_TRUE(change_.recovery);
  EXPECT_EQ(change_.recovery->generation, 0);
  EXPECT_EQ(change_.recovery->point.step, 4);
  EXPECT_EQ(change_.recovery->from, "");
  EXPECT_FALSE(change_.recovery->stops);
  EXPECT_EQ(devices_in(change_.program), (Names{name(1), name(2)}));
  EXPECT_EQ(devices_in(change_.move), (Names{name(1), name(2)})) << "nothing comes of the dead";
  ASSERT_EQ(change_.devices.size(), 2u);
  EXPECT_EQ(orders(), Names{});
  clock_.now += Seconds(2);
  change_begins(1, 1, 4);
  EXPECT_EQ(samples_of(0), 0);
  EXPECT_EQ(samples_of(1), 4);
  EXPECT_EQ(samples_of(2), 4);
  ASSERT_EQ(adapting_->membership().size(), 1u);
  const job::MembershipChange& seen = adapting_->membership()[0];
  EXPECT_EQ(seen.step, 4);
  EXPECT_EQ(seen.lost, Names{name(0)});
  EXPECT_EQ(seen.joined, Names{});
  EXPECT_EQ(seen.pause, Seconds(2));
  EXPECT_EQ(seen.lost_steps, 0);
  EXPECT_EQ(state(0), "absent");
  EXPECT_EQ(state(1), "training");
  const auto kept = read_decisions(prepared_->directory.decisions()).value();
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[1].policy, "membership");
  EXPECT_EQ(kept[1].begins, 4);
  EXPECT_THAT(kept[1].choice.why, HasSubstr("without " + name(0)));
}

TEST_F(ElasticTest, ABatchThatGrewStaysWithItsLearningRate) {
  adaptation_->candidates.push_back(
      {"first", lower_plan(inputs_, split(inputs_.devices, {4, 2, 2})).value()});
  Candidate& grown = adaptation_->candidates.front();
  grown.planned.plan.replicas = plan::make_replicas(inputs_.devices, {10, 6, 4});
  grown.planned.plan.global_batch = 20;
  grown.planned = lower_plan(inputs_, grown.planned.plan).value();
  grown.lr_factor = 1.5;
  begin();
  ASSERT_TRUE(lose(0));
  (void)orders();
  for (const int process : {1, 2}) stand(process, 1, {.point = {.step = 3}});
  EXPECT_EQ(orders(), Names{"change 1"});
  EXPECT_EQ(change_.program.global_batch, 20);
  EXPECT_EQ(change_.lr_factor, 1.5);
}

TEST_F(ElasticTest, AStepThatNobodyEndedIsDoneAgain) {
  begin();
  ASSERT_TRUE(lose(0));
  (void)orders();
  stand(1, 1, {.is_open = true, .may_end = true, .point = {.step = 3}});
  stand(2, 1, {.is_open = true, .point = {.step = 3}});
  EXPECT_EQ(orders(), Names{"change 1"});
  EXPECT_EQ(change_.recovery->point.step, 3);
  change_begins(1, 1, 3);
  EXPECT_EQ(adapting_->membership().at(0).lost_steps, 1);
}

TEST_F(ElasticTest, WhereNobodyWasLostTheSamePlanIsGoneOnBy) {
  begin();
  for (const int process : {0, 1, 2}) say("stalled", process);
  EXPECT_EQ(orders(), Names{"halt 1"});
  for (const int process : {0, 1, 2}) stand(process, 1, {.point = {.step = 3}});
  EXPECT_EQ(orders(), Names{"change 1"});
  EXPECT_EQ(devices_in(change_.program).size(), 3u);
  change_begins(0, 1, 3);
  EXPECT_EQ(adapting_->current_index(), 0);
  EXPECT_TRUE(replanned_.empty());
}

TEST_F(ElasticTest, ASecondLossWhileOthersPrepareGoesOnFromWhereTheyStandThen) {
  begin();
  ASSERT_TRUE(lose(0));
  (void)orders();
  stand(1, 1, {.point = {.step = 3}});
  stand(2, 1, {.point = {.step = 3}});
  ASSERT_EQ(orders(), Names{"change 1"});
  ASSERT_TRUE(lose(1));
  EXPECT_EQ(orders(), Names{"halt 2"});
  // It had passed the barrier into plan 1, unreported.
  stand(2, 2, {.generation = 1, .point = {.step = 3}});
  ASSERT_EQ(orders(), Names{"change 2"});
  EXPECT_EQ(change_.after, 1);
  EXPECT_EQ(change_.recovery->generation, 1);
  EXPECT_EQ(devices_in(change_.move), Names{name(2)});
  change_begins(2, 2, 3);
  EXPECT_EQ(adapting_->membership().at(0).lost, (Names{name(0), name(1)}));
  EXPECT_EQ(samples_of(2), 8);
}

TEST_F(ElasticTest, NobodyLeftEndsTheJob) {
  begin();
  EXPECT_TRUE(lose(0));
  EXPECT_TRUE(lose(1));
  EXPECT_FALSE(lose(2));
}

TEST_F(ElasticTest, AHostThatDoesNotComeEndsNothing) {
  adaptation_->candidates.push_back(
      {"first", lower_plan(inputs_, split({DeviceId(0), DeviceId(1)}, {5, 3})).value()});
  adaptation_->spare = {DeviceId(2)};
  adaptation_->absent = {name(2)};
  begin();
  ASSERT_TRUE(adapting_->take_in(name(2)));
  EXPECT_EQ(orders(), Names{"start 2"});
  EXPECT_TRUE(
      adapting_->on_loss(2, {ErrorKind::kRuntime, "host.unreachable", "host c: no answer"}));
  EXPECT_EQ(state(2), "absent");
  EXPECT_EQ(orders(), Names{});
  ASSERT_TRUE(adapting_->take_in(name(2))) << "it may be asked for again";
}

TEST_F(ElasticTest, OfACheckpointWhatHasComeHereCounts) {
  begin(5);
  say("checkpoint", 0, {{"step", 2}, {"path", "here"}});
  ASSERT_TRUE(lose(0));
  EXPECT_EQ(orders(), Names{"halt 1"});
  // Another checkpoint was written there since.
  const run::TrainingPoint there{
      .step = 5, .saved_step = 4, .saved_path = "there", .saved_host = "b"};
  for (const int process : {1, 2}) {
    run::RecoveryState recovery_state{.device = name(process), .point = there};
    Json said = run::recovery_state_to_json(recovery_state);
    said["halt"] = 1;
    say("halted", process, std::move(said));
  }
  EXPECT_EQ(orders(), Names{"change 1"});
  EXPECT_EQ(change_.recovery->point.saved_step, 2);
  EXPECT_EQ(change_.recovery->point.saved_path, "here");
  EXPECT_EQ(change_.recovery->point.saved_host, "");
}

TEST_F(ElasticTest, AFaultOfTheTrainingEndsTheJob) {
  begin();
  EXPECT_FALSE(adapting_->on_loss(1, {ErrorKind::kUsage, "data.label", "label 12 of 10"}));
}

TEST_F(ElasticTest, SurvivorsThatCannotGoOnSaveAndStop) {
  fewest_ = 3;
  begin();
  ASSERT_TRUE(lose(0));
  (void)orders();
  stand(1, 1, {.point = {.step = 3}});
  stand(2, 1, {.point = {.step = 3}});
  EXPECT_EQ(orders(), Names{"change 1"});
  EXPECT_TRUE(change_.recovery->stops);
  EXPECT_EQ(change_.recovery->from, "");
  EXPECT_EQ(devices_in(change_.program), Names{name(1)}) << "one is enough to save";
  EXPECT_THAT(notes(),
              HasSubstr("stopping, as those that are left cannot go on: these are too few"));
}

/// With sharded state, a lost device's part is gone; here the lost device trained alone.
class AloneTest : public ElasticTest {
 protected:
  AloneTest() {
    adaptation_->candidates.push_back(
        {"alone", lower_plan(inputs_, split({DeviceId(0)}, {8})).value()});
    adaptation_->spare = {DeviceId(1), DeviceId(2)};
  }
  std::string write_checkpoint(std::int64_t step) {
    const std::vector<float> values(4, 1.0F);
    const NamedTensor weight{"w", {DType::kF32, {4}, std::as_bytes(std::span(values))}};
    const run::SavedTensor model{weight, {}}, moment{{"w/momentum", weight.tensor}, {}};
    const run::CheckpointState state{
        .step = step, .samples = 8 * step, .global_batch = 8, .model_hash = inputs_.model->hash};
    return run::CheckpointStore(choices_.run_dir)
        .write(state, {0, 1, {&model, 1}, {&moment, 1}})
        .value();
  }

  /// Loses 0, which alone had the model; the others halt.
  void lose_the_model() {
    ASSERT_TRUE(lose(0));
    (void)orders();
    stand(1, 1, {.is_idle = true});
    stand(2, 1, {.is_idle = true});
  }
};

TEST_F(AloneTest, WhereAllStateIsLostTrainingBeginsAnewWithoutACheckpoint) {
  begin(5);
  lose_the_model();
  EXPECT_EQ(orders(), Names{"change 1"});
  EXPECT_EQ(change_.recovery->from, "new");
  EXPECT_EQ(change_.recovery->point.step, 0);
  EXPECT_TRUE(change_.move.devices.empty());
  EXPECT_EQ(devices_in(change_.program), (Names{name(1), name(2)}));
  change_begins(1, 1, 0);
  EXPECT_EQ(adapting_->membership().at(0).lost_steps, 5);
}

TEST_F(AloneTest, WhereAllStateIsLostTheLastCheckpointIsGoneOnFrom) {
  begin(5);
  const std::string path = write_checkpoint(2);
  say("checkpoint", 0, {{"step", 2}, {"path", path}});
  lose_the_model();
  EXPECT_EQ(orders(), Names{"change 1"});
  EXPECT_EQ(change_.recovery->from, path);
  EXPECT_EQ(change_.recovery->point.step, 2);
  EXPECT_EQ(change_.recovery->point.saved_step, 2);
  EXPECT_EQ(change_.recovery->point.saved_path, path);
  change_begins(1, 1, 2);
  EXPECT_EQ(adapting_->membership().at(0).lost_steps, 3);
}

TEST_F(AloneTest, LostStepsAreCountedOnce) {
  begin(5);
  lose_the_model();
  ASSERT_EQ(orders(), Names{"change 1"});
  EXPECT_EQ(adapting_->steps_done(), 0);
  ASSERT_TRUE(lose(2));
  ASSERT_EQ(orders(), Names{"halt 2"});
  stand(1, 2, {.is_idle = true, .entering = 1});
  ASSERT_EQ(orders(), Names{"change 2"});
  change_begins(1, 2, 0);
  ASSERT_EQ(adapting_->membership().size(), 1u);
  EXPECT_EQ(adapting_->membership()[0].lost_steps, 5);
  EXPECT_EQ(adapting_->membership()[0].lost, (Names{name(0), name(2)}));
}

// 1 left by a plan that only 0 trained with, and knows the step at that time.
TEST_F(AloneTest, StepsSinceTheLastOneLeftAreLostToo) {
  begin(5);
  ASSERT_TRUE(lose(0));
  (void)orders();
  stand(1, 1, {.is_idle = true, .has_left = true, .point = {.step = 2}});
  stand(2, 1, {.is_idle = true});
  EXPECT_EQ(orders(), Names{"change 1"});
  EXPECT_EQ(change_.recovery->from, "new");
  change_begins(1, 1, 0);
  EXPECT_EQ(adapting_->membership().at(0).lost_steps, 5);
}

// 1 has loaded the checkpoint and trains with plan 1; 2 has its earlier state, so both load again.
// Then 2 is lost; the state of 1 has the form of plan 1, whose beginning was never reported.
TEST_F(AloneTest, APlanThatOnlySomeCameToIsRemembered) {
  begin(5);
  lose_the_model();
  ASSERT_EQ(orders(), Names{"change 1"});
  const Names first = devices_in(change_.program);
  say("stalled", 1);
  ASSERT_EQ(orders(), Names{"halt 2"});
  stand(1, 2, {.generation = 1});
  stand(2, 2, {.generation = 2, .point = {.step = 1}});
  ASSERT_EQ(orders(), Names{"change 2"});
  EXPECT_EQ(change_.recovery->from, "new");
  ASSERT_TRUE(lose(2));
  ASSERT_EQ(orders(), Names{"halt 3"});
  stand(1, 3, {.generation = 1});
  ASSERT_EQ(orders(), Names{"change 3"});
  EXPECT_EQ(change_.after, 1);
  EXPECT_EQ(change_.recovery->generation, 1);
  EXPECT_EQ(change_.recovery->from, "");
  EXPECT_EQ(devices_in(change_.move), Names{name(1)});
}

TEST_F(ElasticTest, WhoIsReleasedLeavesByAPlanWithoutIt) {
  begin();
  ASSERT_TRUE(adapting_->release(name(1)));
  EXPECT_EQ(state(1), "leaving");
  EXPECT_TRUE(adapting_->release(name(1))) << "once more is no fault";
  EXPECT_EQ(orders(), Names{"change 1"});
  EXPECT_FALSE(change_.recovery);
  EXPECT_EQ(devices_in(change_.program), (Names{name(0), name(2)}));
  EXPECT_EQ(devices_in(change_.move).size(), 3u) << "who leaves gives what it has";
  EXPECT_EQ(change_.processes, (std::vector<int>{0, 1, 2}));
  change_begins(0, 1, 4);
  EXPECT_EQ(orders(), Names{"kill 1"});
  EXPECT_TRUE(lose(1));
  EXPECT_EQ(orders(), Names{}) << "its end is no loss";
  EXPECT_EQ(state(1), "absent");
  ASSERT_EQ(adapting_->membership().size(), 1u);
  EXPECT_EQ(adapting_->membership()[0].left, Names{name(1)});
  EXPECT_EQ(adapting_->membership()[0].pause, Seconds(0.25));
  const auto again = adapting_->release(name(1));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, "elastic.absent");
}

TEST_F(ElasticTest, NobodyIsReleasedWithoutWhomTheOthersCannotGoOn) {
  fewest_ = 3;
  begin();
  const auto released = adapting_->release(name(1));
  ASSERT_FALSE(released);
  EXPECT_EQ(released.error().kind, ErrorKind::kInfeasible);
  EXPECT_EQ(released.error().message, "these are too few");
  EXPECT_EQ(state(1), "training");
  EXPECT_EQ(orders(), Names{});
}

TEST_F(ElasticTest, NobodyIsReleasedByAPlanThatCannotBeMade) {
  ignores_ = true;
  most_ = 2;
  begin();
  const auto released = adapting_->release(name(1));
  ASSERT_FALSE(released);
  EXPECT_EQ(released.error().code, "adapt.absent");
  EXPECT_EQ(state(1), "training");
  EXPECT_EQ(orders(), Names{});
}

TEST_F(ElasticTest, WhoIsReleasedStaysWhereWorkersRefuse) {
  begin();
  ASSERT_TRUE(adapting_->release(name(1)));
  ASSERT_EQ(orders(), Names{"change 1"});
  say("refused", 0, {{"change", 1}, {"why", "out of memory"}});
  EXPECT_EQ(state(1), "training");
  EXPECT_TRUE(adapting_->membership().empty());
}

TEST_F(ElasticTest, ALossWhileOneLeavesIsRecoveredFromWithoutBoth) {
  begin();
  ASSERT_TRUE(adapting_->release(name(1)));
  ASSERT_EQ(orders(), Names{"change 1"});
  ASSERT_TRUE(lose(2));
  ASSERT_EQ(orders(), Names{"halt 1"});
  for (const int process : {0, 1}) stand(process, 1, {.point = {.step = 3}});
  ASSERT_EQ(orders(), Names{"change 2"});
  EXPECT_EQ(devices_in(change_.program), Names{name(0)});
  change_begins(0, 2, 3);
  EXPECT_EQ(orders(), Names{"kill 1"});
  EXPECT_EQ(adapting_->membership().at(0).lost, Names{name(2)});
  EXPECT_EQ(adapting_->membership().at(0).left, Names{name(1)});
}

TEST_F(ElasticTest, WhoIsTakenInTakesPartWhenItIsReady) {
  adaptation_->candidates.push_back(
      {"first", lower_plan(inputs_, split({DeviceId(0), DeviceId(1)}, {5, 3})).value()});
  adaptation_->spare = {DeviceId(2)};
  adaptation_->absent = {name(2)};
  begin();
  EXPECT_EQ(state(2), "absent");
  EXPECT_EQ(adapting_->take_in("z:9").error().code, "elastic.unknown");
  EXPECT_EQ(adapting_->take_in(name(0)).error().code, "elastic.present");
  ASSERT_TRUE(adapting_->take_in(name(2)));
  EXPECT_EQ(adapting_->take_in(name(2)).error().code, "elastic.present");
  EXPECT_EQ(orders(), Names{"start 2"});
  EXPECT_EQ(state(2), "coming");
  say("ready", 2, {{"idle", true}, {"leads", false}});
  EXPECT_EQ(state(2), "coming");
  EXPECT_EQ(orders(), Names{"change 1"});
  EXPECT_EQ(devices_in(change_.program).size(), 3u);
  EXPECT_EQ(change_.processes, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(orders(), Names{}) << "it is asked for once";
  change_begins(0, 1, 4);
  EXPECT_EQ(state(2), "training");
  EXPECT_EQ(adapting_->membership().at(0).joined, Names{name(2)});
  EXPECT_EQ(orders(), Names{});
}

class IdleTest : public ElasticTest {
 protected:
  /// A third device joins, and no plan with it is faster.
  IdleTest() {
    most_ = 2;
    adaptation_->candidates.push_back(
        {"first", lower_plan(inputs_, split({DeviceId(0), DeviceId(1)}, {4, 4})).value()});
    adaptation_->spare = {DeviceId(2)};
    adaptation_->absent = {name(2)};
  }
  void come() {
    ASSERT_TRUE(adapting_->take_in(name(2)));
    EXPECT_EQ(orders(), Names{"start 2"});
    say("ready", 2, {{"idle", true}, {"leads", false}});
    EXPECT_EQ(orders(), Names{});
  }
};

TEST_F(IdleTest, WhoIsOfNoUseIsIdleAndTakesPartWhenAnotherIsLost) {
  begin();
  come();
  EXPECT_THAT(notes(), HasSubstr(name(2) + " is idle: the plan is quicker without"));
  EXPECT_EQ(state(2), "idle");
  ASSERT_TRUE(lose(0));
  ASSERT_EQ(orders(), Names{"halt 1"});
  stand(1, 1, {.point = {.step = 3}});
  stand(2, 1, {.generation = -1, .is_idle = true});
  ASSERT_EQ(orders(), Names{"change 1"});
  EXPECT_EQ(devices_in(change_.program), (Names{name(1), name(2)}));
  EXPECT_EQ(change_.recovery->from, "");
}

TEST_F(IdleTest, WhoIsIdleMayLeaveAtOnce) {
  begin();
  come();
  ASSERT_TRUE(adapting_->release(name(2)));
  EXPECT_EQ(orders(), Names{"kill 2"});
  EXPECT_TRUE(lose(2));
  EXPECT_EQ(orders(), Names{});
  EXPECT_EQ(adapting_->membership().at(0).left, Names{name(2)});
}

// It never learned which plan runs, so it cannot learn that training is over.
TEST_F(IdleTest, WhoWasNeverToldOfAPlanIsNotWaitedForAtTheEnd) {
  begin();
  come();
  say("done", 0, {{"reason", "finished"}});
  EXPECT_EQ(orders(), Names{"kill 2"});
  EXPECT_TRUE(lose(2));
  say("done", 1, {{"reason", "finished"}});
  EXPECT_EQ(orders(), Names{});
  EXPECT_EQ(adapting_->take_in(name(2)).error().code, "elastic.over");
}

TEST_F(IdleTest, WhoComesWhenAllIsOverIsSentAway) {
  begin();
  ASSERT_TRUE(adapting_->take_in(name(2)));
  EXPECT_EQ(orders(), Names{"start 2"});
  say("done", 0, {{"reason", "finished"}});
  say("ready", 2, {{"idle", true}, {"leads", false}});
  EXPECT_EQ(orders(), Names{"kill 2"});
}

TEST_F(ElasticTest, AnArrivalThatWorkersRefuseIsNotTriedAgainAndAgain) {
  begin();
  ASSERT_TRUE(lose(2));
  (void)orders();
  for (const int process : {0, 1}) stand(process, 1, {.point = {.step = 3}});
  ASSERT_EQ(orders(), Names{"change 1"});
  change_begins(0, 1, 3);
  ASSERT_TRUE(adapting_->take_in(name(2)));
  ASSERT_EQ(orders(), Names{"start 2"});
  say("ready", 2, {{"idle", true}, {"leads", false}});
  ASSERT_EQ(orders(), Names{"change 2"});
  say("refused", 0, {{"change", 2}, {"why", "rank 2: out of memory"}});
  EXPECT_EQ(orders(), Names{});
  EXPECT_EQ(state(2), "idle");
}

// It has a rank in the plan that the others continue from, but its tensors are gone.
TEST_F(ElasticTest, WhoIsThereAgainBeforeTheOthersGoOnHasNothingToGive) {
  begin();
  ASSERT_TRUE(lose(2));
  ASSERT_EQ(orders(), Names{"halt 1"});
  ASSERT_TRUE(adapting_->take_in(name(2)));
  ASSERT_EQ(orders(), Names{"start 2"});
  stand(0, 1, {.point = {.step = 3}});
  say("ready", 2, {{"idle", true}, {"leads", false}});
  ASSERT_EQ(orders(), Names{"halt 2"});
  for (const int process : {0, 1}) stand(process, 2, {.point = {.step = 3}});
  stand(2, 2, {.generation = -1, .is_idle = true});
  ASSERT_EQ(orders(), Names{"change 1"});
  EXPECT_EQ(devices_in(change_.program).size(), 3u);
  const auto place = std::find_if(change_.move.devices.begin(), change_.move.devices.end(),
                                  [&](const auto& device) { return device.device == name(2); });
  ASSERT_NE(place, change_.move.devices.end());
  for (const program::Instruction& each : place->instructions)
    EXPECT_NE(each.op, "motley::send") << "it would send what it does not have";
}

TEST_F(ElasticTest, DevicesThatConditionsTakeAwayComeBack) {
  choices_.conditions.absences = {{name(1), Seconds(5), Seconds(8)}};
  begin();
  clock_.now += Seconds(4.9);
  EXPECT_EQ(orders(), Names{});
  clock_.now += Seconds(0.2);
  EXPECT_EQ(orders(), Names{"kill 1"});
  EXPECT_EQ(orders(), Names{}) << "once";
  ASSERT_TRUE(lose(1));
  ASSERT_EQ(orders(), Names{"halt 1"});
  for (const int process : {0, 2}) stand(process, 1, {.point = {.step = 3}});
  ASSERT_EQ(orders(), Names{"change 1"});
  change_begins(0, 1, 3);
  EXPECT_EQ(orders(), Names{});
  clock_.now += Seconds(3);
  EXPECT_EQ(orders(), Names{"start 1"});
  EXPECT_EQ(orders(), Names{});
  say("ready", 1, {{"idle", true}, {"leads", false}});
  EXPECT_EQ(orders(), Names{"change 2"});
  change_begins(0, 2, 5);
  EXPECT_EQ(state(1), "training");
}

TEST_F(ElasticTest, AbsencesBeginWhenTrainingDoes) {
  choices_.conditions.absences = {{name(1), Seconds(0)}};
  begin(0);
  clock_.now += Seconds(100);
  EXPECT_EQ(orders(), Names{});
  do_step(0, 0);
  EXPECT_EQ(orders(), Names{"kill 1"});
}

constexpr const char* kJoiner = R"(schema = "motley.cluster/1"
name = "newcomer"
[[node]]
name = "d"
  [[node.device]]
  kind = "cpu"
  speed = 0.4
)";

/// The cluster may grow by a device with the memory in `largest_`.
class JoinerTest : public ElasticTest {
 protected:
  JoinerTest() {
    most_ = 4;
    adaptation_->grow = [this](const cluster::Cluster& joiner) -> Result<Grown> {
      Grown grown;
      MOTLEY_ASSIGN(grown.joined, add_joiner(joiner, inputs_.cluster));
      MOTLEY_ASSIGN(grown.device, cluster::find_device(inputs_.cluster, device_name(joiner)));
      grown.worker = worker_device(inputs_.cluster, grown.device, std::nullopt);
      return grown;
    };
    adaptation_->price = [this](DeviceId device) {
      priced_.push_back(inputs_.cluster.device(device).name);
      return std::string("priced as ever");
    };
  }
  Result<void> welcome(const std::string& text = kJoiner) {
    return adapting_->welcome(parse_joiner(text).value());
  }
  std::vector<std::string> kept() const {
    return read_joiners(prepared_->directory.joiners()).value();
  }

  Names priced_;
};

TEST_F(JoinerTest, ADeviceThatTheClusterHasNotComesWhileTheOthersTrain) {
  begin();
  ASSERT_TRUE(welcome());
  EXPECT_EQ(orders(), (Names{"add 3", "start 3"})) << "nobody halts";
  EXPECT_EQ(state(3), "coming");
  EXPECT_FALSE(adapting_->device_states()[3].has_come);
  EXPECT_EQ(welcome().error().code, "elastic.present");
  do_step(3, 0);
  EXPECT_EQ(priced_, Names{});
  say("ready", 3, {{"idle", true}, {"leads", false}});
  EXPECT_EQ(orders(), Names{"change 1"});
  EXPECT_EQ(priced_, Names{"d:0"});
  EXPECT_EQ(change_.processes, (std::vector<int>{0, 1, 2, 3}));
  ASSERT_EQ(change_.devices.size(), 4u);
  EXPECT_EQ(change_.devices[3].name, "d:0");
  ASSERT_EQ(change_.moving.size(), change_.move.devices.size());
  EXPECT_EQ(change_.moving.back().name, "d:0") << "others have not heard of it before";
  EXPECT_EQ(kept(), Names{});
  change_begins(0, 1, 5);
  EXPECT_EQ(state(3), "training");
  EXPECT_TRUE(adapting_->device_states()[3].has_come);
  EXPECT_EQ(adapting_->membership().at(0).joined, Names{"d:0"});
  ASSERT_EQ(kept().size(), 1u);
  EXPECT_EQ(device_name(parse_joiner(kept()[0]).value()), "d:0");
  EXPECT_EQ(welcome().error().code, "elastic.taken");
  // All plans refer to the grown cluster.
  for (const Candidate& each : adaptation_->candidates)
    EXPECT_EQ(each.planned.plan.cluster_hash, cluster::cluster_hash(inputs_.cluster));
  ASSERT_TRUE(adapting_->release("d:0"));
  EXPECT_EQ(orders(), Names{"change 2"});
  change_begins(0, 2, 6);
  EXPECT_EQ(orders(), Names{"kill 3"});
  ASSERT_TRUE(lose(3));
  ASSERT_TRUE(adapting_->take_in("d:0"));
  EXPECT_EQ(orders(), Names{"start 3"});
}

TEST_F(JoinerTest, OneThatDoesNotComeMayBeDescribedAnew) {
  begin();
  ASSERT_TRUE(welcome());
  ASSERT_EQ(orders(), (Names{"add 3", "start 3"}));
  ASSERT_TRUE(adapting_->on_loss(3, {ErrorKind::kRuntime, "host.unreachable", "no route"}));
  EXPECT_EQ(orders(), Names{}) << "the others train on";
  const auto states = adapting_->device_states();
  EXPECT_EQ(states[3].state, "absent");
  ASSERT_TRUE(states[3].why);
  EXPECT_EQ(states[3].why->message, "no route");
  EXPECT_EQ(kept(), Names{});
  std::string text = kJoiner;
  text.replace(text.find("0.4"), 3, "0.7");
  ASSERT_TRUE(welcome(text));
  EXPECT_EQ(inputs_.cluster.devices.size(), 4u);
  EXPECT_EQ(inputs_.cluster.devices[3].speed, 0.7);
  EXPECT_EQ(orders(), (Names{"add 3", "start 3"}));
  say("ready", 3, {{"idle", true}, {"leads", false}});
  ASSERT_EQ(orders(), Names{"change 1"});
  EXPECT_EQ(change_.devices.at(3).speed, 0.7);
}

TEST_F(JoinerTest, OneWithWhomNoPlanIsPossibleIsSentBack) {
  begin();
  const auto replan = adaptation_->replan;
  adaptation_->replan = [&](const std::vector<DeviceId>& devices,
                            const BatchNow& batch) -> Result<Candidate> {
    if (devices.size() == 4)
      return tl::make_unexpected(
          Error{ErrorKind::kInfeasible, "plan.memory", "1 KiB is too little"});
    return replan(devices, batch);
  };
  ASSERT_TRUE(welcome());
  ASSERT_EQ(orders(), (Names{"add 3", "start 3"}));
  say("ready", 3, {{"idle", true}, {"leads", false}});
  EXPECT_EQ(orders(), Names{});
  EXPECT_EQ(orders(), Names{"kill 3"});
  ASSERT_TRUE(lose(3));
  EXPECT_EQ(state(3), "absent");
  EXPECT_EQ(adapting_->device_states()[3].why->kind, ErrorKind::kInfeasible);
  EXPECT_THAT(notes(), HasSubstr("d:0 is idle: 1 KiB is too little\nd:0 is sent back"));
  ASSERT_TRUE(lose(1));
  EXPECT_EQ(orders(), Names{"halt 1"});
  for (const int process : {0, 2}) stand(process, 1, {.point = {.step = 3}});
  EXPECT_EQ(orders(), Names{"change 1"});
}

TEST_F(JoinerTest, ALossWhileItComesIsGoneOnFromWithoutIt) {
  begin();
  ASSERT_TRUE(welcome());
  ASSERT_EQ(orders(), (Names{"add 3", "start 3"}));
  ASSERT_TRUE(lose(1));
  ASSERT_EQ(orders(), Names{"halt 1"});
  say("ready", 3, {{"idle", true}, {"leads", false}});
  ASSERT_EQ(orders(), Names{"halt 2"});
  for (const int process : {0, 2}) stand(process, 2, {.point = {.step = 3}});
  run::RecoveryState idle{.generation = -1, .is_idle = true};
  idle.device = "d:0";
  Json said = run::recovery_state_to_json(idle);
  said["halt"] = 2;
  say("halted", 3, std::move(said));
  EXPECT_EQ(orders(), Names{"change 1"});
  EXPECT_EQ(devices_in(change_.program), (Names{name(0), name(2)})) << "it has no price yet";
  change_begins(0, 1, 3);
  EXPECT_EQ(orders(), Names{"change 2"});
  EXPECT_EQ(devices_in(change_.program), (Names{name(0), name(2), "d:0"}));
}

TEST_F(JoinerTest, ANextLeadIsToldOfItBeforeAnybodyElse) {
  adaptation_->standby_state = {{"arguments", Names{}}, {"name", "x"}, {"host", "here"}};
  begin();
  ASSERT_TRUE(welcome());
  auto order = adapting_->next_order();
  ASSERT_TRUE(order && std::holds_alternative<job::Leave>(*order));
  const Json what = std::get<job::Leave>(*order).what;
  EXPECT_EQ(what["devices"].back()["name"], "d:0");
  const auto known = cluster::parse_cluster(what["cluster"].get<std::string>(), "left").value();
  EXPECT_EQ(known, [&] {
    cluster::Cluster own = inputs_.cluster;
    for (cluster::Device& device : own.devices) device.taken_for.clear();
    return own;
  }());
  EXPECT_EQ(orders(), (Names{"add 3", "start 3"}));
}

TEST_F(JoinerTest, MembersOfAFixedClusterAreNotAdded) {
  adaptation_->grow = nullptr;
  begin();
  EXPECT_EQ(welcome().error().code, "elastic.unknown");
}

// Anybody on this machine can send requests, and none may end the training.
TEST_F(ElasticTest, QuestionsOfAnyFormAreAnswered) {
  begin();
  auto control_socket = run::ControlSocket::open(0, temporary_.file("door.json")).value();
  auto address = run::read_control_socket(temporary_.file("door.json")).value();
  const auto ask = [&](const Json& question) {
    Result<Json> answer = runtime_error("none", "");
    std::thread caller([&] { answer = run::ask_control_socket(address, question, 10); });
    std::atomic<bool> is_over = false;
    std::thread joiner([&] {
      caller.join();
      is_over = true;
    });
    while (!is_over) {
      answer_requests(*control_socket, *adapting_);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    joiner.join();
    EXPECT_TRUE(answer) << answer.error().message;
    return answer ? *answer : Json::object();
  };
  EXPECT_EQ(ask({{"do", 3}})["error"]["code"], "elastic.question");
  EXPECT_EQ(ask({{"do", Json::array()}})["error"]["code"], "elastic.question");
  EXPECT_EQ(ask({{"do", "leave"}, {"device", 7}})["error"]["code"], "elastic.absent");
  EXPECT_EQ(ask({{"do", "join"}, {"version", true}})["error"]["code"], "elastic.version");
  EXPECT_EQ(ask({{"do", "join"}, {"version", "v1"}})["error"]["code"], "elastic.nobody");
  const Json state = ask({{"do", "state"}});
  EXPECT_FALSE(state.contains("error"));
  EXPECT_EQ(state["step"], 3);
  ASSERT_EQ(state["devices"].size(), 3u);
  EXPECT_EQ(state["devices"][0]["state"], "training");
  EXPECT_FALSE(ask({{"do", "leave"}, {"device", name(1)}}).contains("error"));
  EXPECT_EQ(this->state(1), "leaving");
  address.word = "another";
  for (const char* what : {"state", "leave", "join"}) {
    const Json refused = ask({{"do", what}});
    EXPECT_EQ(refused.size(), 1u) << refused;
    EXPECT_EQ(refused["error"]["code"], "elastic.word");
  }
}

}  // namespace
}  // namespace motley::control
