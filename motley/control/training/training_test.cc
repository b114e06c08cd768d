#include "motley/control/training/training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/program/program_text.h"
#include "motley/testing/fake_outside.h"
#include "motley/testing/small_inputs.h"

namespace motley::control {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class TrainingTest : public ::testing::Test {
 protected:
  explicit TrainingTest(const char* cluster = kTwoCpus) : inputs_(small_inputs(cluster, 8)) {
    EXPECT_TRUE(write_mlp_data(temporary_.file("data.safetensors")));
    choices_.data.path = temporary_.file("data.safetensors");
    choices_.run_dir = temporary_.file("run");
    choices_.steps = 3;
    std::vector<std::int64_t> samples(inputs_.devices.size(), 1);
    samples[0] = 9 - static_cast<std::int64_t>(samples.size());
    plan::Plan plan{.model_hash = inputs_.model->hash,
                    .cluster_hash = cluster::cluster_hash(inputs_.cluster),
                    .global_batch = 8,
                    .replicas = plan::make_replicas(inputs_.devices, samples)};
    planned_ = lower_plan(inputs_, plan).value();
    play(0, 3);
  }
  /// Steps [first, end) of both ranks, one second each.
  void play(std::int64_t first, std::int64_t end) {
    workers_.events = {{"ready", 0, {{"first_step", first}}}};
    for (std::int64_t step = first; step < end; ++step)
      for (int rank = 0; rank < static_cast<int>(inputs_.devices.size()); ++rank)
        workers_.events.push_back(step_event(rank, step, 1.0, 0.5, 1.0 / (1.0 + step)));
  }
  Result<PreparedRun> prepare() const { return prepare_run(inputs_, planned_, nullptr, choices_); }
  Result<Measured> run() {
    MOTLEY_ASSIGN(const PreparedRun prepared, prepare());
    return train(prepared, outside_);
  }

  TemporaryDirectory temporary_;
  Inputs inputs_;
  Planned planned_;
  TrainChoices choices_;
  FakeWorkers workers_;
  FakeClock clock_;
  RecordingListener listener_;
  const Outside outside_{workers_, clock_, listener_};
};

class EmulatedTrainingTest : public TrainingTest {
 protected:
  EmulatedTrainingTest() : TrainingTest(kEmulated) {}
};

TEST_F(TrainingTest, TheRunDirectoryHasAllThatWorkersNeed) {
  const PreparedRun prepared = prepare().value();
  const std::string text = read_file(prepared.directory.program()).value();
  EXPECT_EQ(text, program::print_program(*planned_.program));
  const Json json = parse_json(read_file(prepared.directory.job()).value(), "job").value();
  const run::Job job = run::job_from_json(json, "job").value();
  EXPECT_EQ(job, prepared.job);
  EXPECT_EQ(job.steps, 3);
  EXPECT_EQ(job.data.path, choices_.data.path);
  EXPECT_TRUE(job.resume);
  EXPECT_THAT(job.devices, ElementsAre(Field(&run::WorkerDevice::name, "a:0"),
                                       Field(&run::WorkerDevice::name, "a:1")));
  const std::string plan = read_file(prepared.directory.plan()).value();
  EXPECT_EQ(plan::parse_plan(plan, "plan", inputs_.cluster).value(), planned_.plan);
}

TEST_F(TrainingTest, ARunGivesItsLossesAndKeepsASummary) {
  const auto measured = run();
  ASSERT_TRUE(measured) << measured.error().message;
  EXPECT_THAT(measured->losses, ElementsAre(1.0, 0.5, 1.0 / 3));
  EXPECT_EQ(measured->step.value, 1.0);
  EXPECT_THAT(measured->busy, ElementsAre(0.5, 0.5));
  EXPECT_FALSE(measured->stopped);
  const std::string text = read_file(choices_.run_dir + "/summary.json").value();
  const Json summary = parse_json(text, "summary").value();
  EXPECT_EQ(summary.at("steps"), 3);
  EXPECT_EQ(summary.at("predicted_step_s"), nullptr);
  EXPECT_EQ(summary.at("devices").at(0).at("samples"), 7);
  EXPECT_EQ(summary.at("devices").at(1).at("busy_share"), 0.5);
  EXPECT_EQ(summary.at("run_dir"), choices_.run_dir);
}

TEST_F(TrainingTest, AStepReportSaysHowFarTheRunIs) {
  ASSERT_TRUE(run());
  ASSERT_THAT(listener_.steps, SizeIs(3));
  EXPECT_EQ(listener_.steps[1].step, 1);
  EXPECT_EQ(listener_.steps[1].steps, 3);
  EXPECT_THAT(listener_.steps[1].devices, ElementsAre("a:0", "a:1"));
  EXPECT_FALSE(listener_.steps[1].predicted);
}

TEST_F(TrainingTest, AListenerStopsTheRunAndItIsNoError) {
  listener_.stop_after = 1;
  const auto measured = run();
  ASSERT_TRUE(measured);
  EXPECT_TRUE(measured->stopped);
  EXPECT_THAT(measured->losses, SizeIs(2));
}

TEST_F(TrainingTest, AWorkerThatDiesIsTheRunsError) {
  const Error lost{ErrorKind::kRuntime, "run.worker-lost", "rank 1 (a:1) was killed by signal 9"};
  workers_.outcome = {.end = run::JobEnd::kFailed, .error = lost};
  play(0, 2);
  const auto measured = run();
  ASSERT_FALSE(measured);
  EXPECT_EQ(measured.error(), lost);
  EXPECT_THAT(read_log({choices_.run_dir}).value().steps, SizeIs(2));
  EXPECT_FALSE(std::filesystem::exists(choices_.run_dir + "/summary.json"));
}

TEST_F(TrainingTest, ARerunContinuesTheLog) {
  workers_.outcome.end = run::JobEnd::kFailed;
  play(0, 2);
  ASSERT_FALSE(run());
  workers_.outcome.end = run::JobEnd::kFinished;
  play(1, 3);  // the checkpoint was after step 0
  const auto measured = run();
  ASSERT_TRUE(measured);
  EXPECT_EQ(measured->first_step, 1);
  EXPECT_EQ(measured->lost_steps, 1);
  EXPECT_THAT(measured->losses, SizeIs(3));
}

TEST_F(TrainingTest, ARunThatBeginsAnewForgetsTheLog) {
  ASSERT_TRUE(run());
  choices_.resume = false;
  choices_.steps = 1;
  play(0, 1);
  EXPECT_THAT(run()->losses, SizeIs(1));
  EXPECT_FALSE(workers_.jobs.back().resume);
}

TEST_F(TrainingTest, APredictionGoesBesideTheRunAndAnOldOneGoes) {
  Predicted predicted;
  predicted.step.value = 0.25;
  predicted.trace.devices = {"a:0", "a:1"};
  predicted.trace.names.resize(2);
  const auto prepared = prepare_run(inputs_, planned_, &predicted, choices_);
  ASSERT_TRUE(prepared);
  EXPECT_TRUE(std::filesystem::exists(prepared->directory.predicted()));
  ASSERT_TRUE(train(*prepared, outside_));
  EXPECT_EQ(listener_.steps.at(0).predicted, Seconds(0.25));
  ASSERT_TRUE(prepare());
  EXPECT_FALSE(std::filesystem::exists(prepared->directory.predicted()));
}

TEST_F(TrainingTest, AModelWithoutWeightsIsNotTrained) {
  graph::Model model{.graph = inputs_.graph(), .hash = inputs_.model->hash};
  inputs_.model = std::make_shared<const graph::Model>(std::move(model));
  const auto prepared = prepare();
  ASSERT_FALSE(prepared);
  EXPECT_EQ(prepared.error().message,
            "mlp.motley: holds no weights (exported with --graph-only); export it again without "
            "--graph-only to train");
  EXPECT_FALSE(std::filesystem::exists(choices_.run_dir));
}

TEST_F(TrainingTest, DataThatDoesNotFitIsSaidBeforeAWorkerStarts) {
  const std::vector<float> x(4 * 3, 0.5F);
  const NamedTensor tensors[] = {{"x", {DType::kF32, {4, 3}, std::as_bytes(std::span(x))}}};
  ASSERT_TRUE(write_safetensors(choices_.data.path, tensors, {}));
  const auto measured = run();
  ASSERT_FALSE(measured);
  EXPECT_EQ(measured.error().kind, ErrorKind::kUsage);
  EXPECT_THAT(measured.error().message, HasSubstr("no array 'y'; found x"));
  EXPECT_THAT(workers_.jobs, IsEmpty());
}

TEST_F(EmulatedTrainingTest, WorkersHoldSpeedsUnlessSomethingOutsideDoes) {
  const auto speeds = [&](Enforce enforce) {
    choices_.enforce = enforce;
    std::vector<double> list;
    for (const run::WorkerDevice& device : prepare()->job.devices) list.push_back(device.speed);
    return list;
  };
  EXPECT_THAT(speeds(Enforce::kSpeedsAndLinks), ElementsAre(0.8, 0.4, 0.2));
  EXPECT_THAT(speeds(Enforce::kSpeeds), ElementsAre(0.8, 0.4, 0.2));
  EXPECT_THAT(speeds(Enforce::kNothing), Each(1.0));
}

class LinkedTrainingTest : public TrainingTest {
 protected:
  static constexpr const char* kLinked = R"(schema = "motley.cluster/1"
name = "linked"
[[node]]
name = "a"
  [[node.device]]
  kind = "cpu"
[[node]]
name = "b"
  [[node.device]]
  kind = "cpu"
[[link]]
all = true
bandwidth = "1Gbps"
latency = "1ms"
)";
  LinkedTrainingTest() : TrainingTest(kLinked) {}
};

TEST_F(LinkedTrainingTest, LinksAreHeldWhereAllNodesAreThisMachine) {
  const auto rates = [&](Enforce enforce) {
    choices_.enforce = enforce;
    std::vector<std::optional<double>> list;
    for (const run::WorkerDevice& device : prepare()->job.devices) list.push_back(device.rate);
    return list;
  };
  EXPECT_THAT(rates(Enforce::kSpeedsAndLinks), Each(std::optional(1e9 / 8)));
  EXPECT_THAT(rates(Enforce::kSpeeds), Each(std::nullopt));
  inputs_.cluster.nodes[1].host = "far.example";  // its link is real
  EXPECT_THAT(rates(Enforce::kSpeedsAndLinks), Each(std::nullopt));
}

TEST_F(LinkedTrainingTest, AHostWhoseClockIsOffIsNamed) {
  inputs_.cluster.nodes[1].host = "far.example";
  workers_.clocks = {{"far.example", Seconds(-12.34)}};
  ASSERT_TRUE(run());
  EXPECT_THAT(listener_.notes,
              Contains("note: far.example: its clock is 12.3 s behind this one's: times in its "
                       "logs and of its files are its own; nothing else of a run depends on it"));
  listener_.notes.clear();
  workers_.clocks = {{"far.example", Seconds(0.5)}};
  ASSERT_TRUE(run());
  EXPECT_THAT(listener_.notes, Not(Contains(HasSubstr("its clock"))));
}

TEST_F(LinkedTrainingTest, TheClustersTransportHoldsUnlessAnotherIsAskedFor) {
  inputs_.cluster.transport = "gloo";
  EXPECT_EQ(prepare()->job.transport, "gloo");
  inputs_.cluster.transport = "auto";
  EXPECT_EQ(prepare()->job.transport, "auto");
  choices_.transport = "gloo";
  EXPECT_EQ(prepare()->job.transport, "gloo");
}

}  // namespace
}  // namespace motley::control
