#include "motley/control/planning/planning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "motley/base/file.h"
#include "motley/control/planning/tried_plans.h"
#include "motley/cost/profile_cost.h"
#include "motley/program/memory.h"
#include "motley/program/program_text.h"
#include "motley/testing/fake_outside.h"
#include "motley/testing/small_inputs.h"

namespace motley::control {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

class PlanningTest : public ::testing::Test {
 protected:
  PlanChoices choices(const std::string& planner = "split") const {
    return {.prices = {.profiles = directory_.file("profiles.db")}, .planner = planner};
  }
  std::string plan_text(const Inputs& inputs, const std::vector<std::int64_t>& samples) const {
    plan::Plan plan{.model_hash = inputs.model->hash,
                    .cluster_hash = cluster::cluster_hash(inputs.cluster),
                    .global_batch = inputs.global_batch,
                    .replicas = plan::make_replicas(inputs.devices, samples)};
    return plan::print_plan(plan, inputs.cluster);
  }
  std::string write(const std::string& text) const {
    EXPECT_TRUE(write_file_atomic(directory_.file("plan.json"), text));
    return directory_.file("plan.json");
  }

  TemporaryDirectory directory_;
  FakeWorkers workers_;
  FakeClock clock_{Seconds(1)};
  RecordingListener listener_;
  const Outside outside_{workers_, clock_, listener_};
};

TEST_F(PlanningTest, WhatIsMissingIsMeasuredOnceAndThenKnown) {
  Inputs inputs = small_inputs(kTwoCpus, 8);
  const auto answer = find_plan(inputs, choices(), outside_);
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_THAT(workers_.groups, SizeIs(1));
  ASSERT_TRUE(find_plan(inputs, choices(), outside_));
  EXPECT_THAT(workers_.groups, SizeIs(1));
}

TEST_F(PlanningTest, TheProgramIsThePlansLowering) {
  Inputs inputs = small_inputs(kTwoCpus, 8);
  const Answer answer = find_plan(inputs, choices("equal"), outside_).value();
  ASSERT_TRUE(answer.planned);
  EXPECT_EQ(answer.planned->plan, *answer.outcome.plan);
  const program::Program lowered =
      synth::lower(inputs.graph(), answer.planned->plan, inputs.cluster).value();
  EXPECT_EQ(program::print_program(*answer.planned->program), program::print_program(lowered));
  ASSERT_THAT(answer.planned->program->devices, SizeIs(2));
  EXPECT_EQ(answer.planned->program->devices[0].samples, 4);
}

// An earlier run measured the chosen plan, at 1 s a step, and the best alternative.
TEST_F(PlanningTest, APlanThatWasFasterInAnEarlierRunIsChosen) {
  Inputs inputs = small_inputs(kTwoCpus, 8);
  const plan::PlanOutcome first = find_plan(inputs, choices("auto"), outside_).value().outcome;
  ASSERT_FALSE(first.alternatives.empty());
  EXPECT_EQ(first.measured_step, std::nullopt);
  const plan::Alternative& other = first.alternatives.front();
  const auto plan_after = [&](double other_took) {
    auto store = cost::ProfileStore::open(directory_.file("profiles.db")).value();
    EXPECT_TRUE(remember_tried(inputs, {*first.plan, first.predicted_step, Seconds(1)}, store));
    EXPECT_TRUE(remember_tried(inputs, {other.plan, other.step, Seconds(other_took)}, store));
    return find_plan(inputs, choices("auto"), outside_).value().outcome;
  };
  const plan::PlanOutcome faster = plan_after(0.5);
  EXPECT_EQ(*faster.plan, other.plan);
  EXPECT_EQ(faster.measured_step, Seconds(0.5));
  EXPECT_THAT(faster.why.front(), HasSubstr("took 500 ms in an earlier run; "));
  // The latest run counts; 2 % are less than the difference between runs.
  const plan::PlanOutcome identical = plan_after(0.98);
  EXPECT_EQ(*identical.plan, *first.plan);
  EXPECT_EQ(identical.measured_step, Seconds(1));
}

TEST_F(PlanningTest, PhasesAreToldInOrderWithTheirText) {
  Inputs inputs = small_inputs(kTwoCpus, 8);
  ASSERT_TRUE(find_plan(inputs, choices("equal"), outside_));
  ASSERT_THAT(listener_.phases, SizeIs(3));
  EXPECT_EQ(listener_.phases[0].first, Phase::kPrice);
  EXPECT_THAT(listener_.phases[0].second, StartsWith("motley.costs/1"));
  EXPECT_EQ(listener_.phases[1].first, Phase::kSearch);
  EXPECT_THAT(listener_.phases[1].second, HasSubstr("motley.plan/1"));
  EXPECT_EQ(listener_.phases[2].first, Phase::kSynth);
  EXPECT_THAT(listener_.phases[2].second, StartsWith("motley.program/1"));
}

TEST_F(PlanningTest, TheSearchIsTimedByTheClockAlone) {
  // The fake clock advances by a second per reading: before and after the one search.
  Inputs inputs = small_inputs(kTwoCpus, 8);
  EXPECT_EQ(find_plan(inputs, choices("equal"), outside_)->elapsed_s, 1);
}

TEST_F(PlanningTest, ManualSamplesOverrideThePlanner) {
  Inputs inputs = small_inputs(kTwoCpus, 8);
  PlanChoices manual = choices("auto");
  manual.manual = {6, 2};
  const Answer answer = find_plan(inputs, manual, outside_).value();
  EXPECT_THAT(plan::members(answer.planned->plan),
              ElementsAre(plan::Member{DeviceId(0), 6}, plan::Member{DeviceId(1), 2}));
}

TEST_F(PlanningTest, AShardingIsPlannedAgainWithWhatItsPartsTook) {
  Inputs inputs = small_inputs(kTwoCpus, 64);
  const Answer answer = find_plan(inputs, choices("spmd"), outside_).value();
  ASSERT_TRUE(answer.planned);
  const bool is_sharded = plan::splits_operators(answer.planned->plan);
  const std::string learned =
      "profile: parts of operators as the plan splits them, on cpu beside 1";
  const auto rounds = std::count(listener_.notes.begin(), listener_.notes.end(), learned);
  EXPECT_LE(rounds, kPlanningRounds);
  // Prices load once a round. The last round learns nothing new, or is the last allowed.
  const auto priced = std::count_if(listener_.phases.begin(), listener_.phases.end(),
                                    [](const auto& each) { return each.first == Phase::kPrice; });
  if (is_sharded) {
    EXPECT_EQ(priced, std::min<std::ptrdiff_t>(rounds + 1, kPlanningRounds));
  }
  // Once all times are known, the same question needs no workers.
  const std::size_t asked = workers_.timed.size();
  ASSERT_TRUE(find_plan(inputs, choices("spmd"), outside_));
  if (rounds < kPlanningRounds) {
    EXPECT_EQ(workers_.timed.size(), asked);
  }
}

TEST_F(PlanningTest, RefusedPricesNameWhatWasNeverMeasured) {
  Inputs inputs = small_inputs(kTwoCpus, 8);
  PlanChoices refusing = choices();
  refusing.prices.missing = Missing::kRefuse;
  const auto answer = find_plan(inputs, refusing, outside_);
  ASSERT_FALSE(answer);
  EXPECT_THAT(answer.error().code, ::testing::EndsWith(".missing-profile"));
  EXPECT_THAT(answer.error().message, HasSubstr("motley profile"));
  EXPECT_THAT(workers_.timed, IsEmpty());
  EXPECT_THAT(listener_.phases, IsEmpty());
}

TEST_F(PlanningTest, ModelledTimesComeFromOtherModelsOnly) {
  Inputs inputs = small_inputs(kTwoCpus, 8);
  PlanChoices modelling = choices();
  modelling.prices.missing = Missing::kModel;
  EXPECT_FALSE(find_plan(inputs, modelling, outside_));
  EXPECT_THAT(workers_.timed, IsEmpty());
}

TEST_F(PlanningTest, ADeviceWithTooLittleMemoryIsAnAnswerNotAnError) {
  std::string cluster = kTwoCpus;
  for (std::size_t at = 0; (at = cluster.find("kind = \"cpu\"", at)) != std::string::npos; at += 30)
    cluster.insert(at, "memory = \"1KiB\"\n  ");
  Inputs inputs = small_inputs(cluster, 8);
  const Answer answer = find_plan(inputs, choices(), outside_).value();
  EXPECT_FALSE(answer.planned);
  EXPECT_EQ(answer.outcome.reason, plan::Reason::kInfeasible);
  const Error error = infeasible_error(answer.outcome);
  EXPECT_EQ(error.kind, ErrorKind::kInfeasible);
  EXPECT_THAT(error.message, StartsWith("no feasible plan: "));
  EXPECT_THAT(error.message, HasSubstr("1 KiB"));
}

// What is left after a loss has one replica, or lacks the server: the planner decides who sums.
TEST_F(PlanningTest, WithoutWhatSyncAsksForAJobGoesOn) {
  Inputs inputs = small_inputs(kTwoCpus, 8);
  PlanChoices asked = choices("equal");
  asked.sync = {search::Sync::Kind::kServer, inputs.cluster.device(inputs.devices[0]).name};
  const Answer first = find_plan(inputs, asked, outside_).value();
  EXPECT_THAT(first.outcome.plan->owners, SizeIs(1));
  Inputs left = inputs;
  left.devices.erase(left.devices.begin());
  const auto again = plan_again(left, asked, first.priced);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_THAT(again->plan->owners, IsEmpty());
  EXPECT_EQ(find_plan(left, asked, outside_).error().code, "search.sync");
}

TEST_F(PlanningTest, AnUnknownPlannerIsAUsageError) {
  Inputs inputs = small_inputs(kTwoCpus, 8);
  const auto answer = find_plan(inputs, choices("splitt"), outside_);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().kind, ErrorKind::kUsage);
  EXPECT_THAT(answer.error().message, HasSubstr("did you mean 'split'?"));
}

TEST_F(PlanningTest, APlanFileIsReadWithItsProgram) {
  Inputs inputs = small_inputs(kTwoCpus, 8);
  const Planned planned = read_plan(write(plan_text(inputs, {5, 3})), inputs).value();
  ASSERT_THAT(planned.program->devices, SizeIs(2));
  EXPECT_EQ(planned.program->devices[0].samples, 5);
  EXPECT_EQ(planned.program->devices[1].samples, 3);
}

TEST_F(PlanningTest, PlansSayWhetherGpusMayUseTf32) {
  Inputs inputs = small_inputs(kTwoCpus, 8);
  inputs.tf32 = true;
  // A plan without TF32 is for a run without it, whose times differ.
  const std::string without = write(plan_text(inputs, {5, 3}));
  const auto refused = read_plan(without, inputs);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            without + ": was made without --tf32; leave it out, or plan again with it");
  const Answer answer = find_plan(inputs, choices("split"), outside_).value();
  EXPECT_TRUE(answer.outcome.plan->tf32);
  Inputs unasked = small_inputs(kTwoCpus, 8);
  ASSERT_TRUE(read_plan(write(plan::print_plan(*answer.outcome.plan, inputs.cluster)), unasked));
  EXPECT_TRUE(unasked.tf32);
  EXPECT_EQ(engine_version(unasked, "2.15"), "2.15+tf32");
  EXPECT_EQ(engine_version(small_inputs(kTwoCpus, 8), "2.15"), "2.15");
}

TEST_F(PlanningTest, APlanOfAnotherModelOrClusterIsStale) {
  Inputs inputs = small_inputs(kTwoCpus, 8);
  const std::string path = write(plan_text(inputs, {5, 3}));
  Inputs other_model = inputs;
  graph::Model model{.graph = inputs.graph(), .hash = "00000000000000bb"};
  other_model.model = std::make_shared<const graph::Model>(std::move(model));
  Inputs other_cluster = inputs;
  other_cluster.cluster.devices[1].speed = 0.5;
  for (Inputs* other : {&other_model, &other_cluster}) {
    const auto read = read_plan(path, *other);
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().kind, ErrorKind::kStale);
    EXPECT_THAT(read.error().message, StartsWith(path + ": "));
    EXPECT_THAT(read.error().message, HasSubstr("plan again"));
  }
}

TEST_F(PlanningTest, APlanFileThatDoesNotFitSaysWhatItNeeds) {
  Inputs inputs = small_inputs(kTwoCpus, 8);
  inputs.cluster.devices[1].memory = Bytes(1 << 10);
  const auto read = read_plan(write(plan_text(inputs, {5, 3})), inputs);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().kind, ErrorKind::kInfeasible);
  EXPECT_THAT(read.error().message, StartsWith("a:1 needs "));
  EXPECT_THAT(read.error().message, ::testing::EndsWith(" for 3 samples, has 1 KiB; plan again"));
}

TEST_F(PlanningTest, InputsFollowAPlanMadeElsewhere) {
  Inputs inputs = small_inputs(kTwoCpus, 8);
  plan::Plan plan{.global_batch = 24, .batch_norm = plan::BatchNormMode::kLocal};
  plan.recipe.optimizer.lr = 0.125;
  ASSERT_TRUE(follow_plan(plan, inputs));
  EXPECT_EQ(inputs.global_batch, 24);
  EXPECT_EQ(inputs.lowering.batch_norm, plan::BatchNormMode::kLocal);
  EXPECT_EQ(inputs.lowering.recipe.optimizer.lr, 0.125);
}

}  // namespace
}  // namespace motley::control
