#include "motley/control/training/adapting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/control/training/decision_log.h"
#include "motley/control/training/training.h"
#include "motley/control/training/trials.h"
#include "motley/testing/fake_outside.h"
#include "motley/testing/small_inputs.h"

namespace motley::control {
namespace {

using ::testing::HasSubstr;

/// Asks for plan 1 after step 1, and for a split when that is refused.
class OnceAsked : public policy::Policy {
 public:
  std::string_view name() const override { return "once"; }
  std::vector<policy::Choice> observe(const policy::Observation& observation) override {
    if (const auto* refusal = std::get_if<policy::RefusalSeen>(&observation)) {
      refusals.push_back(refusal->why);
      return {};
    }
    if (const auto* noise = std::get_if<policy::NoiseSeen>(&observation)) noises.push_back(*noise);
    const auto* seen = std::get_if<policy::StepSeen>(&observation);
    if (seen == nullptr) return {};
    steps.push_back(*seen);
    if (seen->step != 1) return {};
    return {{wanted, Seconds(0.5), "because"}};
  }
  Json state() const override { return {{"schema", "once"}}; }
  Result<void> restore(const Json&, const std::string&) override { return {}; }

  policy::Action wanted = policy::UsePlan{1};
  std::vector<policy::StepSeen> steps;
  std::vector<policy::NoiseSeen> noises;
  std::vector<std::string> refusals;
};

class AdaptingTest : public ::testing::Test {
 protected:
  AdaptingTest() : inputs_(small_inputs(kTwoCpus, 8)) {
    EXPECT_TRUE(write_mlp_data(temporary_.file("data.safetensors")));
    choices_.data.path = temporary_.file("data.safetensors");
    choices_.run_dir = temporary_.file("run");
    choices_.steps = 6;
    adaptation_ = std::make_shared<Adaptation>();
    adaptation_->candidates.push_back({"first", lower({6, 2})});
    adaptation_->candidates.push_back({"second", lower({8})});
    auto policy = std::make_unique<OnceAsked>();
    policy_ = policy.get();
    adaptation_->policy = std::move(policy);
  }

  Planned lower(std::vector<std::int64_t> samples) const {
    std::vector<DeviceId> devices = inputs_.devices;
    devices.resize(samples.size());
    plan::Plan plan{.model_hash = inputs_.model->hash,
                    .cluster_hash = cluster::cluster_hash(inputs_.cluster),
                    .global_batch = std::accumulate(samples.begin(), samples.end(), 0L),
                    .replicas = plan::make_replicas(devices, samples)};
    return lower_plan(inputs_, plan).value();
  }

  void play(std::int64_t step, int generation, int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      run::WorkerEvent event = step_event(rank, step, generation == 0 ? 1.0 : 0.5, 0.5, 1.0);
      event.fields["ranks"] = ranks;
      event.fields["leads"] = rank == 0;
      if (generation > 0) event.fields["stint"] = generation;
      event.fields["parts"] = {{"ready", {0.1}},
                               {"end", 0.2 + rank},
                               {"update", {0.01}},
                               {"exchange", {0.3 - 0.1 * rank}},
                               {"blocking", 0.0}};
      if (counts_squares_)
        event.fields["squares"] = {{"pieces", {{6 - 4 * rank, 2.0 + rank}}}, {"whole", 1.5}};
      workers_.events.push_back(event);
    }
  }

  Result<Measured> run() {
    MOTLEY_ASSIGN(
        const PreparedRun prepared,
        prepare_run(inputs_, adaptation_->candidates[0].planned, nullptr, choices_, adaptation_));
    job_ = prepared.job;
    MOTLEY_ASSIGN(const Measured measured, train(prepared, outside_));
    summary_ = summary_to_json(measured, prepared);
    return measured;
  }

  std::vector<policy::Decision> decisions() const {
    return read_decisions(choices_.run_dir + "/decisions.jsonl").value();
  }

  TemporaryDirectory temporary_;
  Inputs inputs_;
  std::shared_ptr<Adaptation> adaptation_;
  OnceAsked* policy_ = nullptr;
  TrainChoices choices_;
  FakeWorkers workers_;
  FakeClock clock_;
  RecordingListener listener_;
  Outside outside_{workers_, clock_, listener_};
  bool counts_squares_ = false;
  run::Job job_;
  Json summary_;
};

TEST_F(AdaptingTest, APlanThatIsAskedForIsPreparedAndGoneOnBy) {
  choices_.trace_steps = 0;
  workers_.events = {{"ready", 0, {{"first_step", 0}, {"leads", true}}}};
  for (int step = 0; step < 3; ++step) play(step, 0, 2);
  workers_.events.push_back({"change", 0, {{"change", 1}, {"step", 3}}});
  for (int step = 3; step < 6; ++step) play(step, 1, 1);
  const auto measured = run();
  ASSERT_TRUE(measured) << measured.error().message;
  ASSERT_TRUE(job_.changes);
  EXPECT_EQ(job_.devices.size(), 2u);
  // The workers got the second plan and a move from the first plan's devices.
  ASSERT_EQ(workers_.changes.size(), 1u);
  EXPECT_EQ(workers_.changes[0].number, 1);
  EXPECT_EQ(workers_.changes[0].devices.size(), 1u);
  EXPECT_EQ(workers_.changes[0].move.devices.size(), 2u);
  // The policy saw steps of plan 0, then of plan 1. All but the first of each plan have the ranks'
  // reports, and of each exchange the shortest time.
  ASSERT_EQ(policy_->steps.size(), 6u);
  EXPECT_TRUE(policy_->steps[0].devices.empty());
  ASSERT_EQ(policy_->steps[1].devices.size(), 2u);
  EXPECT_EQ(policy_->steps[1].devices[1].samples, 2);
  EXPECT_EQ(policy_->steps[1].devices[1].end, 1.2);
  EXPECT_EQ(policy_->steps[1].exchange, (std::vector<double>{0.3 - 0.1}));
  EXPECT_EQ(policy_->steps[2].plan, 0);
  EXPECT_EQ(policy_->steps[3].plan, 1);
  EXPECT_TRUE(policy_->steps[3].devices.empty());
  EXPECT_EQ(policy_->steps[4].devices[0].samples, 8);
  // The log has decisions with their outcomes, and the directory has the last plan.
  const auto kept = decisions();
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0].policy, "start");
  EXPECT_EQ(kept[0].came, Seconds(1.0));
  EXPECT_EQ(kept[1].seen_step, 2);
  EXPECT_EQ(kept[1].begins, 3);
  EXPECT_EQ(kept[1].before, Seconds(1.0));
  EXPECT_EQ(kept[1].choice.expected, Seconds(0.5));
  EXPECT_EQ(kept[1].came, Seconds(0.5));
  EXPECT_EQ(kept[1].choice.why, "second: because");
  EXPECT_EQ(measured->candidate, 1);
  EXPECT_EQ(measured->step, Seconds(0.5));
  EXPECT_EQ(summary_["devices"].size(), 1u);
  EXPECT_EQ(read_file(choices_.run_dir + "/plan.json").value(), kept[1].plan);
}

TEST_F(AdaptingTest, WhatWorkersRefuseIsToldToThePolicy) {
  choices_.trace_steps = 0;
  workers_.events = {{"ready", 0, {{"first_step", 0}, {"leads", true}}}};
  for (int step = 0; step < 3; ++step) play(step, 0, 2);
  workers_.events.push_back({"refused", 0, {{"change", 1}, {"why", "rank 1: out of memory"}}});
  for (int step = 3; step < 6; ++step) play(step, 0, 2);
  const auto measured = run();
  ASSERT_TRUE(measured) << measured.error().message;
  EXPECT_EQ(policy_->refusals, std::vector<std::string>{"rank 1: out of memory"});
  EXPECT_EQ(measured->candidate, 0);
  EXPECT_EQ(decisions().size(), 1u);
}

// Twenty samples replace eight, and workers get the learning rate's factor.
TEST_F(AdaptingTest, AnotherBatchIsGoneOnBy) {
  choices_.trace_steps = 0;
  counts_squares_ = true;
  policy_->wanted = policy::UseBatch{{{"a:0", 12}, {"a:1", 8}}, 1.5};
  adaptation_->batches = {.first = 8, .most = 20};
  adaptation_->batch = [this](const policy::UseBatch& batch) -> Result<Candidate> {
    Candidate candidate{"twenty", lower({batch.shares[0].samples, batch.shares[1].samples})};
    candidate.lr_factor = batch.lr_factor;
    return candidate;
  };
  workers_.events = {{"ready", 0, {{"first_step", 0}, {"leads", true}}}};
  for (int step = 0; step < 3; ++step) play(step, 0, 2);
  workers_.events.push_back({"change", 0, {{"change", 1}, {"step", 3}}});
  for (int step = 3; step < 5; ++step) play(step, 1, 2);
  ASSERT_TRUE(run());
  EXPECT_EQ(job_.batches, (run::Batches{.first = 8, .most = 20, .lr_factor = 1}));
  ASSERT_EQ(workers_.changes.size(), 1u);
  EXPECT_EQ(workers_.changes[0].program.global_batch, 20);
  EXPECT_EQ(workers_.changes[0].lr_factor, 1.5);
  EXPECT_EQ(policy_->steps[2].global_batch, 8);
  EXPECT_EQ(policy_->steps[4].global_batch, 20);
  ASSERT_EQ(policy_->noises.size(), 5u);
  EXPECT_EQ(policy_->noises[1],
            (policy::NoiseSeen{.step = 1, .squared_norm = 1.5, .pieces = {{6, 2.0}, {2, 3.0}}}));
  const auto kept = decisions();
  EXPECT_EQ(kept[0].choice.action, policy::Action(policy::UseBatch{{{"a:0", 6}, {"a:1", 2}}, 1}));
  EXPECT_EQ(kept[1].choice.action, policy::Action(policy_->wanted));
  const auto again = repeat_decisions(choices_.run_dir + "/decisions.jsonl", inputs_,
                                      adaptation_->candidates[0].planned);
  ASSERT_TRUE(again);
  EXPECT_EQ((*again)->batches, (run::Batches{.first = 8, .most = 20, .lr_factor = 1}));
  ASSERT_EQ((*again)->candidates.size(), 2u);
  EXPECT_EQ((*again)->candidates[1].lr_factor, 1.5);
}

TEST_F(AdaptingTest, WhatCannotBeDoneIsRefused) {
  choices_.trace_steps = 0;
  policy_->wanted = policy::UseSplit{{{"a:0", 5}, {"a:1", 3}}};
  workers_.events = {{"ready", 0, {{"first_step", 0}, {"leads", true}}}};
  for (int step = 0; step < 6; ++step) play(step, 0, 2);
  ASSERT_TRUE(run());
  ASSERT_EQ(policy_->refusals.size(), 1u);
  EXPECT_THAT(policy_->refusals[0], HasSubstr("this training cannot do what the policy asks for"));
}

TEST_F(AdaptingTest, DecisionsAreRepeatedAtTheirSteps) {
  const auto text = [&](int candidate) {
    return plan::print_plan(
        adaptation_->candidates[static_cast<std::size_t>(candidate)].planned.plan, inputs_.cluster);
  };
  const auto line = [&](std::int64_t begins, int candidate) {
    policy::Decision decision{.policy = "x", .begins = begins};
    decision.plan = text(candidate);
    return policy::print_decision(decision) + "\n";
  };
  // Steps 4 to 6 by plan 0 were lost, and plan 1 recomputed them from step 3 on.
  const std::string path = temporary_.file("decisions.jsonl");
  ASSERT_TRUE(
      write_file_atomic(path, line(0, 0) + line(2, 1) + line(4, 0) + line(3, 1) + line(5, 0)));
  const auto repeated = repeat_decisions(path, inputs_, adaptation_->candidates[0].planned);
  ASSERT_TRUE(repeated) << repeated.error().message;
  std::vector<std::int64_t> begins;
  for (const policy::Decision& given : (*repeated)->given) begins.push_back(given.begins);
  EXPECT_EQ(begins, (std::vector<std::int64_t>{2, 5}));
  EXPECT_EQ((*repeated)->given_candidates, (std::vector<int>{1, 0}));
  EXPECT_EQ((*repeated)->first, 0);
}

}  // namespace
}  // namespace motley::control
