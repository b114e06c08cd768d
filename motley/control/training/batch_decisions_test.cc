#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "motley/adapt/drawn_noise.h"
#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/base/safetensors.h"
#include "motley/control/training/batches.h"
#include "motley/control/training/decision_log.h"
#include "motley/control/training/training.h"
#include "motley/control/training/trials.h"
#include "motley/program/program_text.h"
#include "motley/program/square_count.h"
#include "motley/program/step_parts.h"
#include "motley/run/checkpoints/checkpoint.h"
#include "motley/testing/fake_outside.h"
#include "motley/testing/small_inputs.h"
#include "motley/testing/small_question.h"
#include "motley/testing/test_name.h"
#include "peers/policies/policies.h"

namespace motley::control {
namespace {

std::vector<std::string> batch_policy_names() {
  std::vector<std::string> names;
  for (const adapt::NamedBatchPolicy& each : peers::batch_policies()) names.emplace_back(each.name);
  return names;
}

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;
using ::testing::SizeIs;

/// Step times and gradient noise of a simulated training.
struct PlayedSteps {
  double fixed = 2e-3,
         /// Seconds on a device of speed 1, beside exchanges.
      per_sample = 1e-4;
  double exchange = 1e-4;     ///< each
  double counting = 0;        ///< relative step time added by computing squares
  double noise_scale = 3000;  ///< samples
};

/// Trains like workers, but without arithmetic: one step after the other of the running program,
/// with each rank's events. A change begins at the job's step, or three steps after it is ordered.
/// A training ends when its samples are used up, with a checkpoint, from which it can continue.
class PlayedTraining : public FakeWorkers {
 public:
  run::JobOutcome train(const run::Job& job, const OnEvent& on_event, const Orders& orders,
                        const OnLoss&) override {
    begin(job);
    for (std::size_t rank = 0; rank < program_.devices.size(); ++rank)
      (void)on_event({"ready", process(rank), {{"first_step", step_}, {"leads", rank == 0}}});
    while (taken_ < job.steps * job.batches->first) {
      while (const auto order = orders()) hear(*order);
      change_if_due(on_event);
      step(on_event);
    }
    end(on_event);
    return outcome;
  }

  PlayedSteps steps;
  std::vector<std::int64_t> told_counting;
  std::vector<std::int64_t> counted;
  std::vector<program::Program> programs;  ///< in the order in which they ran

 private:
  struct Due {
    std::int64_t step = 0;
    run::Change change;
  };

  void begin(const run::Job& job) {
    job_ = job;
    enter(program::parse_program(read_file(job.program_path).value(), "program").value());
    lr_factor_ = job.batches->lr_factor;
    begins_ = job.changes->at;
    step_ = taken_ = generation_ = 0;
    every_ = 1;
    due_.clear();
    if (!job.resume) return;
    const auto found = run::CheckpointStore(job.run_dir).open_latest();
    ASSERT_TRUE(found) << found.error().message;
    if (!*found) return;
    step_ = (*found)->state.step;
    taken_ = (*found)->state.samples;
  }

  void end(const OnEvent& on_event) const {
    const auto path = run::CheckpointStore(job_.run_dir)
                          .write({.step = step_,
                                  .samples = taken_,
                                  .global_batch = job_.batches->first,
                                  .model_hash = program_.model_hash},
                                 {});
    ASSERT_TRUE(path) << path.error().message;
    (void)on_event({"checkpoint", process(0), {{"path", *path}, {"step", step_}}});
  }

  void hear(const job::Order& order) {
    if (const auto* count = std::get_if<job::CountEvery>(&order)) {
      told_counting.push_back(every_ = count->every);
    } else if (const auto* change = std::get_if<run::Change>(&order)) {
      EXPECT_EQ(change->after, due_.empty() ? generation_ : due_.back().change.number);
      due_.push_back({step_ + 3, *change});
      if (begins_.empty()) return;
      due_.back().step = begins_.front();
      begins_.erase(begins_.begin());
    }
  }

  void change_if_due(const OnEvent& on_event) {
    if (due_.empty() || due_.front().step > step_) return;
    const run::Change change = std::move(due_.front().change);
    due_.erase(due_.begin());
    enter(change.program);
    generation_ = change.number;
    lr_factor_ = change.lr_factor;
    (void)on_event({"change", process(0), {{"change", generation_}, {"step", step_}}});
  }

  void enter(program::Program program) {
    program_ = std::move(program);
    programs.push_back(program_);
    const auto& first = program_.devices.front().instructions;
    may_count_ = std::any_of(first.begin(), first.end(), program::counts_squares);
  }

  void step(const OnEvent& on_event) {
    const bool counts = step_ % every_ == 0 && may_count_;
    if (counts) counted.push_back(step_);
    std::vector<program::StepParts> parts;
    double longest = 0;
    for (const program::DeviceProgram& device : program_.devices) {
      const program::StepParts& own = parts.emplace_back(parts_of(device));
      const double tail = std::accumulate(own.update.begin(), own.update.end(), 0.0) +
                          std::accumulate(own.exchange.begin(), own.exchange.end(), 0.0);
      longest = std::max(longest, own.end + own.blocking + tail);
    }
    if (counts) longest *= 1 + steps.counting;
    const policy::NoiseSeen seen = drawn_.draw({1, steps.noise_scale}, piece_sizes());
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      run::WorkerEvent event = step_event(process(rank), step_, longest, parts[rank].end);
      event.fields["ranks"] = parts.size();
      event.fields["leads"] = rank == 0;
      event.fields["stint"] = generation_;
      event.fields["lr_factor"] = lr_factor_;
      event.fields["batch"] = program_.global_batch;
      event.fields["parts"] = {{"ready", parts[rank].ready},
                               {"end", parts[rank].end},
                               {"update", parts[rank].update},
                               {"exchange", parts[rank].exchange},
                               {"blocking", parts[rank].blocking}};
      if (counts) event.fields["squares"] = squares_of(rank, seen);
      (void)on_event(event);
    }
    taken_ += program_.global_batch;
    ++step_;
  }

  program::StepParts parts_of(const program::DeviceProgram& device) const {
    const program::StepShape shape = program::find_step_shape(device);
    const auto known =
        std::find_if(job_.devices.begin(), job_.devices.end(),
                     [&](const run::WorkerDevice& each) { return each.name == device.device; });
    const double work =
        (steps.fixed + steps.per_sample * static_cast<double>(device.samples)) / known->speed;
    const auto computing = std::count(shape.computes.begin(), shape.computes.end(), true);
    std::vector<double> worked(shape.computes.size()), took(worked);
    double sum = 0;
    for (std::size_t i = 0; i < worked.size(); ++i) {
      took[i] = shape.computes[i] ? work / static_cast<double>(computing) : steps.exchange;
      worked[i] = sum += shape.computes[i] ? took[i] : 0;
    }
    return program::find_step_parts(shape, worked, took);
  }

  /// Sizes of noise pieces: the samples of each device, or of each micro-batch of a single one.
  std::vector<std::int64_t> piece_sizes() const {
    std::vector<std::int64_t> sizes;
    for (const program::DeviceProgram& device : program_.devices) sizes.push_back(device.samples);
    if (sizes.size() > 1) return sizes;
    const std::int64_t times = std::max<std::int64_t>(2, program_.micro_batches);
    const std::int64_t samples = std::exchange(sizes, {}).front();
    for (std::int64_t i = 0; i < times; ++i)
      sizes.push_back(samples / times + (i < samples % times ? 1 : 0));
    return sizes;
  }

  Json squares_of(std::size_t rank, const policy::NoiseSeen& seen) const {
    Json pieces = Json::array();
    for (std::size_t i = 0; i < seen.pieces.size(); ++i)
      if (program_.devices.size() == 1 || i == rank)
        pieces.push_back({seen.pieces[i].samples, seen.pieces[i].squared_norm});
    return {{"pieces", std::move(pieces)}, {"whole", seen.squared_norm}};
  }

  int process(std::size_t rank) const {
    for (std::size_t i = 0; i < job_.devices.size(); ++i)
      if (job_.devices[i].name == program_.devices[rank].device) return static_cast<int>(i);
    return -1;
  }

  run::Job job_;
  program::Program program_;
  bool may_count_ = false;
  int generation_ = 0;
  double lr_factor_ = 1;
  std::int64_t step_ = 0, taken_ = 0, every_ = 1;
  std::vector<std::int64_t> begins_;  // of the first changes
  std::vector<Due> due_;
  adapt::DrawnNoise drawn_{std::vector<double>(200, 1.0), 5};
};

constexpr const char* kOneEmulated = R"(schema = "motley.cluster/1"
name = "one"
[[node]]
name = "a"
  [[node.device]]
  kind = "cpu"
  speed = 0.8
)";

/// Trainings with adaptive batches and no prices: device curves are learned from nothing.
class BatchDecisionsTest : public ::testing::Test {
 protected:
  BatchDecisionsTest() {
    const std::vector<float> x(4 * 64, 0.5F);
    const std::vector<std::int64_t> y = {0, 1, 2, 3};
    const auto write = [&](const std::string& name, std::vector<std::int64_t> shape) {
      const std::int64_t elements =
          std::accumulate(shape.begin(), shape.end(), std::int64_t{4}, std::multiplies<>());
      shape.insert(shape.begin(), 4);
      const auto bytes = std::as_bytes(std::span(x).first(static_cast<std::size_t>(elements)));
      const NamedTensor tensors[] = {{"x", {DType::kF32, shape, bytes}},
                                     {"y", {DType::kI64, {4}, std::as_bytes(std::span(y))}}};
      EXPECT_TRUE(write_safetensors(temporary_.file(name), tensors, {}));
    };
    write("mlp.safetensors", {12});
    write("cnn.safetensors", {1, 8, 8});
    batch_.samples = 360;
    train_.trace_steps = 0;
  }

  /// Splits the batch over the first devices of a cluster, for the golden MLP, or for the golden
  /// CNN with statistics per micro-batch.
  std::unique_ptr<ChosenPlan> choose(const std::string& cluster,
                                     const std::vector<std::int64_t>& split,
                                     std::int64_t micro_batches = 1,
                                     const std::string& name = "mlp") {
    auto chosen = std::make_unique<ChosenPlan>();
    chosen->inputs =
        small_inputs(cluster, std::accumulate(split.begin(), split.end(), std::int64_t{0}));
    graph::Model model = *chosen->inputs.model;
    const auto text =
        read_file(motley::testing::source_path("tests/golden/graph/" + name + ".txt"));
    model.graph = graph::parse_graph(*text, name).value();
    chosen->inputs.model = std::make_shared<const graph::Model>(std::move(model));
    train_.data.path = temporary_.file(name + ".safetensors");
    std::vector<DeviceId> devices = chosen->inputs.devices;
    devices.resize(split.size());
    plan::Plan plan{.model_hash = chosen->inputs.model->hash,
                    .cluster_hash = cluster::cluster_hash(chosen->inputs.cluster),
                    .global_batch = chosen->inputs.global_batch,
                    .replicas = plan::make_replicas(devices, split)};
    plan.recipe.optimizer.lr = 0.02;
    if (micro_batches > 1) plan.batch_norm_span = plan::BatchNormSpan::kMicroBatch;
    if (micro_batches > 1) plan.batch_norm_span = plan::BatchNormSpan::kMicroBatch;
    for (plan::Replica& replica : plan.replicas) replica.micro_batches = micro_batches;
    auto planned = lower_plan(chosen->inputs, plan);
    EXPECT_TRUE(planned) << planned.error().message;
    chosen->planned = std::move(*planned);
    return chosen;
  }

  /// Trains like `motley run`, continuing from decisions in the folder.
  void train(const ChosenPlan& chosen, std::int64_t steps) {
    auto made = adapt_batch(chosen, batch_);
    ASSERT_TRUE(made) << made.error().message;
    const auto resumed = resume_adaptation(directory(), chosen, listener_, **made);
    ASSERT_TRUE(resumed) << resumed.error().message;
    train_by(*made, chosen, steps);
  }

  void train_by(const std::shared_ptr<Adaptation>& adaptation, const ChosenPlan& chosen,
                std::int64_t steps) {
    train_.steps = steps;
    train_.run_dir = directory().path;
    const Planned& first =
        adaptation->candidates[static_cast<std::size_t>(adaptation->first)].planned;
    const auto prepared = prepare_run(chosen.inputs, first, nullptr, train_, adaptation);
    ASSERT_TRUE(prepared) << prepared.error().message;
    const auto measured = control::train(*prepared, outside_);
    ASSERT_TRUE(measured) << measured.error().message;
  }

  RunDirectory directory() const { return {temporary_.file(folder_)}; }
  std::vector<policy::Decision> decisions() const {
    return read_decisions(directory().decisions()).value();
  }
  std::vector<std::pair<std::int64_t, double>> course() const {
    std::vector<std::pair<std::int64_t, double>> course;
    for (const StepReport& step : listener_.steps)
      course.emplace_back(step.logged.batch.value_or(0), step.logged.lr);
    return course;
  }
  Json kept_policy() const {
    return parse_json(read_file(directory().latest_checkpoint() + "/policy.json").value(), "p")
        .value();
  }
  std::vector<plan::Plan> plans(const ChosenPlan& chosen) const {
    std::vector<plan::Plan> plans;
    for (const policy::Decision& each : decisions())
      if (!each.plan.empty())
        plans.push_back(plan::parse_plan(each.plan, "plan", chosen.inputs.cluster).value());
    return plans;
  }

  TemporaryDirectory temporary_;
  std::string folder_ = "run";
  BatchChoices batch_{.policies = peers::batch_policies()};
  TrainChoices train_;
  PlayedTraining workers_;
  FakeClock clock_;
  RecordingListener listener_;
  const Outside outside_{workers_, clock_, listener_};
};

/// A note of a refused request or of discarded state.
MATCHER(IsARefusal, "") {
  return arg.starts_with("warning: ") || arg.find("is not gone on with") != std::string::npos ||
         arg.find("cannot be had") != std::string::npos ||
         arg.find("not possible") != std::string::npos;
}

std::int64_t sum_of(const std::vector<std::pair<std::int64_t, double>>& course) {
  std::int64_t sum = 0;
  for (const auto& [batch, lr] : course) sum += batch;
  return sum;
}

class BatchPoliciesDecideTest : public BatchDecisionsTest,
                                public ::testing::WithParamInterface<std::tuple<std::string, int>> {
 protected:
  BatchPoliciesDecideTest() { batch_.policy = std::get<0>(GetParam()); }
  const int times_ = std::get<1>(GetParam());
};

// 200 steps of 18 samples, then up to 300 in a second call: 5400 samples. Gradients are mostly
// noise, so policies want larger batches. SimiGrad's first decision is after 100 steps.
TEST_P(BatchPoliciesDecideTest, WithinLimitsAndGoesOnAndIsRepeated) {
  const auto chosen = choose(kEmulated, {6, 6, 6}, times_);
  batch_.least = 17;
  batch_.most = 97;
  train(*chosen, 200);
  EXPECT_EQ(kept_policy()["policy"], batch_.policy);
  const std::size_t begun = listener_.steps.size();
  train(*chosen, 300);
  EXPECT_THAT(listener_.notes, Each(Not(IsARefusal())));
  const auto steps = course();
  std::set<std::int64_t> batches;
  for (const auto& [batch, lr] : steps) batches.insert(batch);
  EXPECT_EQ(steps[0], std::pair(std::int64_t{18}, 0.02));
  EXPECT_THAT(batches, AllOf(SizeIs(Ge(2u)), Each(AllOf(Ge(17), Le(97)))));
  EXPECT_EQ(steps[begun].first, steps[begun - 1].first);
  EXPECT_GE(sum_of(steps), 300 * 18);
  EXPECT_LT(sum_of(steps) - steps.back().first, 300 * 18);
  // The plan's number of micro-batches; on one device at least two.
  for (const plan::Plan& plan : plans(*chosen))
    for (const plan::Replica& replica : plan.replicas) {
      EXPECT_EQ(replica.samples % times_, 0);
      EXPECT_EQ(replica.micro_batches, plan.replicas.size() > 1 ? times_ : std::max(2, times_));
    }
  // Each step has the batch and learning rate of the last decision before it.
  const std::vector<policy::Decision> kept = decisions();
  for (std::size_t step = 0, at = 0; step < steps.size(); ++step) {
    for (std::size_t i = at; i < kept.size() && kept[i].begins <= static_cast<std::int64_t>(step);
         ++i)
      if (!kept[i].plan.empty()) at = i;
    const auto& batch = std::get<policy::UseBatch>(kept[at].choice.action);
    std::int64_t samples = 0;
    for (const policy::Share& share : batch.shares) samples += share.samples;
    EXPECT_EQ(steps[step].first, samples) << step;
    EXPECT_NEAR(steps[step].second, 0.02 * batch.lr_factor, 1e-12) << step;
  }
  const auto repeated = repeat_decisions(directory().decisions(), chosen->inputs, chosen->planned);
  ASSERT_TRUE(repeated) << repeated.error().message;
  folder_ = "again";
  listener_.steps.clear();
  train_by(*repeated, *chosen, 300);
  EXPECT_EQ(course(), steps);
}

INSTANTIATE_TEST_SUITE_P(All, BatchPoliciesDecideTest,
                         ::testing::Combine(::testing::ValuesIn(batch_policy_names()),
                                            ::testing::Values(1, 3)),
                         [](const auto& info) {
                           return motley::testing::test_name(std::get<0>(info.param)) + "_in_" +
                                  std::to_string(std::get<1>(info.param));
                         });

class BatchPoliciesAloneTest : public BatchDecisionsTest,
                               public ::testing::WithParamInterface<std::string> {};

// One device measures noise with two micro-batches, and its batch grows within the limits.
TEST_P(BatchPoliciesAloneTest, DecideOfOneDevice) {
  batch_.policy = GetParam();
  const auto chosen = choose(kOneEmulated, {12});
  batch_.least = 12;
  batch_.most = 48;
  train(*chosen, 300);
  EXPECT_THAT(listener_.notes, Each(Not(IsARefusal())));
  std::set<std::int64_t> batches;
  for (const auto& [batch, lr] : course()) batches.insert(batch);
  EXPECT_THAT(batches, AllOf(SizeIs(Ge(2u)), Each(AllOf(Ge(12), Le(48)))));
  for (const plan::Plan& plan : plans(*chosen)) EXPECT_EQ(plan.replicas.front().micro_batches, 2);
  for (const StepReport& step : listener_.steps)
    if (step.logged.noise) {
      EXPECT_THAT(step.logged.noise->pieces, SizeIs(2));
    }
}

INSTANTIATE_TEST_SUITE_P(All, BatchPoliciesAloneTest, ::testing::ValuesIn(batch_policy_names()),
                         [](const auto& info) { return motley::testing::test_name(info.param); });

// The batch stays. After 32 counted steps the workers are ordered to count every second step. The
// saving is judged after 16 more counted steps, after step 62. A continued run orders it at once.
TEST_F(BatchDecisionsTest, NoiseIsMeasuredLessOftenOnceItIsKnown) {
  const auto chosen = choose(kOneEmulated, {60}, 4);
  batch_.least = batch_.most = 60;
  batch_.rule = adapt::LearningRateRule::kNone;
  workers_.steps.counting = 0.05;
  workers_.steps.noise_scale = 60;
  train(*chosen, 50);
  std::vector<std::pair<std::int64_t, std::int64_t>> paces;
  for (const policy::Decision& each : decisions())
    if (const auto* noise = std::get_if<policy::MeasureNoise>(&each.choice.action))
      paces.emplace_back(each.begins, noise->every);
  ASSERT_THAT(paces, SizeIs(1));
  const auto [begins, every] = paces[0];
  EXPECT_GE(begins, 32);
  EXPECT_LT(begins, 40);
  EXPECT_EQ(every, 2);
  EXPECT_THAT(workers_.told_counting, ElementsAre(2));
  std::vector<std::int64_t> wanted;
  for (std::int64_t step = 0; step < 50; ++step)
    if (step < begins || step % 2 == 0) wanted.push_back(step);
  EXPECT_EQ(workers_.counted, wanted);
  EXPECT_EQ(kept_policy()["counts_every"], 2);
  EXPECT_EQ(kept_policy()["state"]["pace"]["every"], 2);
  workers_.counted.clear();
  train(*chosen, 55);
  EXPECT_THAT(workers_.told_counting, ElementsAre(2, 2));
  EXPECT_THAT(workers_.counted, ElementsAre(50, 52, 54));
}

// Gradients are pure noise, so the largest batch is best. Devices get what their memory holds, and
// twice that would not fit. Micro-batches let it hold more.
TEST_F(BatchDecisionsTest, DevicesAreGivenWhatTheirMemoryHolds) {
  batch_.policy = "adaptdl";
  batch_.least = 12;
  batch_.most = 40000;
  std::string small = kEmulated;
  for (const char* speed : {"speed = 0.8", "speed = 0.4", "speed = 0.2"})
    small.insert(small.find(speed), "memory = \"48KiB\"\n  ");
  for (const std::int64_t times : {1, 4}) {
    folder_ += "_";
    const auto chosen = choose(small, {4, 4, 4}, times);
    Adaptation counting;
    counting.counts_squares = true;
    const auto fits = [&](plan::Plan plan) {
      Candidate candidate{"", {std::move(plan), nullptr}};
      EXPECT_TRUE(lower_candidate(chosen->inputs, counting, candidate));
      return check_memory(chosen->inputs, candidate.planned).has_value();
    };
    train(*chosen, 1000);
    EXPECT_THAT(listener_.notes, Each(Not(IsARefusal())));
    plan::Plan most;
    for (const plan::Plan& plan : plans(*chosen)) {
      EXPECT_TRUE(fits(plan));
      if (plan.global_batch > most.global_batch) most = plan;
    }
    EXPECT_GT(most.global_batch, 60);
    std::vector<DeviceId> devices;
    std::vector<std::int64_t> more;
    for (const plan::Member& member : plan::members(most)) {
      devices.push_back(member.device);
      more.push_back(2 * member.samples);
    }
    most = plan::split_instead(most, devices, more);
    most.global_batch = std::accumulate(more.begin(), more.end(), std::int64_t{0});
    EXPECT_EQ(fits(most), times > 1);
  }
}

// Statistics per micro-batch fix the devices: one device measures the noise of all gradients,
// several devices measure it of the gradients after the last batch norm.
TEST_F(BatchDecisionsTest, BatchNormOfMicroBatchesStaysOnItsDevices) {
  batch_.least = 12;
  batch_.most = 96;
  const auto devices_of_plans = [&](const ChosenPlan& chosen) {
    std::set<std::size_t> counts;
    for (const plan::Plan& plan : plans(chosen)) counts.insert(plan.replicas.size());
    EXPECT_GT(plans(chosen).size(), 1u);
    return counts;
  };
  const auto alone = choose(kEmulated, {12}, 3, "cnn");
  train(*alone, 300);
  EXPECT_EQ(devices_of_plans(*alone), (std::set<std::size_t>{1}));
  for (const StepReport& step : listener_.steps)
    if (step.logged.noise) {
      EXPECT_THAT(step.logged.noise->pieces, SizeIs(3));
    }
  folder_ = "several";
  const auto several = choose(kEmulated, {6, 6}, 3, "cnn");
  train(*several, 300);
  EXPECT_FALSE(devices_of_plans(*several).contains(1));
  EXPECT_THAT(listener_.notes, Each(Not(IsARefusal())));
}

// Steps that cannot be divided: one sample, or statistics of the whole batch.
TEST_F(BatchDecisionsTest, OneDeviceWhoseStepCannotBeDividedIsRefused) {
  const auto why = [&](const ChosenPlan& chosen) {
    const auto made = adapt_batch(chosen, batch_);
    return made ? "" : made.error().message;
  };
  const std::string message =
      "--adapt batch learns the noise of gradients from how those of devices, or of micro-batches "
      "of one device, differ: there is one device, and its step cannot be done in micro-batches";
  EXPECT_EQ(why(*choose(kOneEmulated, {1})), message);
  EXPECT_EQ(why(*choose(kOneEmulated, {12}, 1, "cnn")), message);
  EXPECT_EQ(why(*choose(kOneEmulated, {12}, 3, "cnn")), "");
}

/// Plans priced by fake workers' times: 10 us an instruction.
class PricedBatchTest : public SmallQuestionTest {
 protected:
  std::unique_ptr<ChosenPlan> choose(const std::string& cluster, std::vector<std::int64_t> split,
                                     std::int64_t micro_batches = 0) {
    EXPECT_TRUE(write_file_atomic(question_.cluster, cluster));
    question_.global_batch = std::accumulate(split.begin(), split.end(), std::int64_t{0});
    auto chosen = choose_plan(question_,
                              {.prices = {.profiles = directory_.file("profiles.db")},
                               .manual = std::move(split),
                               .micro_batches = micro_batches},
                              outside_);
    EXPECT_TRUE(chosen) << chosen.error().message;
    return chosen ? *std::move(chosen) : nullptr;
  }
};

// Computing squares takes time in the predicted trace. One device uses two micro-batches, each of
// nearly as many instructions.
TEST_F(PricedBatchTest, WhatIsCountedIsPredicted) {
  const std::pair<std::string, std::vector<std::int64_t>> cases[] = {{kOneEmulated, {8}},
                                                                     {kTwoCpus, {6, 2}}};
  for (const auto& [cluster, split] : cases) {
    const auto chosen = choose(cluster, split);
    ASSERT_NE(chosen, nullptr);
    const auto plain = find_prediction(*chosen, 3, listener_);
    ASSERT_TRUE(plain && *plain);
    const auto made = adapt_batch(*chosen, {.least = 8, .most = 8});
    ASSERT_TRUE(made) << made.error().message;
    const auto& predicted = (*made)->candidates[0].predicted;
    ASSERT_TRUE(predicted);
    EXPECT_GT(predicted->seconds().value,
              (split.size() > 1 ? 1.01 : 1.5) * (*plain)->seconds().value);
    EXPECT_THAT(trace::print_trace(predicted->trace), HasSubstr("square_sums"));
    EXPECT_THAT(trace::print_trace((*plain)->trace), Not(HasSubstr("square_sums")));
  }
}

// With prices all devices may be used, but a single device with batch norm per micro-batch stays.
TEST_F(PricedBatchTest, OwnStatisticsLeaveADeviceAlone) {
  const auto may_take = [&](std::int64_t micro_batches) {
    const auto chosen = choose(kEmulated, {12, 0, 0}, micro_batches);
    const auto made = adapt_batch(*chosen, {.least = 12, .most = 96});
    EXPECT_TRUE(made) << made.error().message;
    return made ? (*made)->spare.size() : 0;
  };
  EXPECT_EQ(may_take(3), 3u);
  const std::string text =
      read_file(motley::testing::source_path("tests/golden/graph/cnn.txt")).value();
  const graph::Graph graph = graph::parse_graph(text, "cnn").value();
  const std::vector<std::byte> zeros(4 * 16 * 8 * 3 * 3);
  std::vector<NamedTensor> tensors;
  for (const graph::ValueRole role : {graph::ValueRole::kParameter, graph::ValueRole::kBuffer})
    for (const ValueId id : graph::values_with_role(graph, role)) {
      const graph::Value& value = graph.value(id);
      TensorView tensor{.dtype = value.dtype};
      std::size_t bytes = value.dtype == DType::kI64 ? 8 : 4;
      for (const auto& size : value.shape) {
        tensor.shape.push_back(size.evaluate_integer({}));
        bytes *= static_cast<std::size_t>(tensor.shape.back());
      }
      tensor.bytes = std::span(zeros).first(bytes);
      tensors.push_back({value.name, tensor});
    }
  ASSERT_TRUE(write_safetensors(question_.model, tensors, {{"motley.graph", text}}));
  EXPECT_EQ(may_take(3), 1u);
}

// A batch of one sample is profiled and planned, and refused only here.
TEST_F(PricedBatchTest, ABatchOfOneSampleIsRefused) {
  const auto chosen = choose(kOneEmulated, {1});
  ASSERT_NE(chosen, nullptr);
  const auto made = adapt_batch(*chosen, {});
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("its step cannot be done in micro-batches"));
}

TEST_F(BatchDecisionsTest, BaselinesKnowNoDevicesThatComeAndGo) {
  const auto chosen = choose(kEmulated, {6, 4, 2});
  batch_.is_elastic = true;
  for (const std::string& name : batch_policy_names()) {
    batch_.policy = name;
    const auto made = adapt_batch(*chosen, batch_);
    EXPECT_EQ(made ? "" : made.error().message,
              name == "motley"
                  ? ""
                  : "--policy " + name + ": knows of no devices that come and go (--elastic)");
  }
}

}  // namespace
}  // namespace motley::control
