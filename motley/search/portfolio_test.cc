#include "motley/search/portfolio.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "motley/search/accumulating.h"
#include "motley/search/planners.h"
#include "motley/search/split/split_planner.h"
#include "motley/simulate/simulate.h"
#include "motley/testing/rounds.h"
#include "motley/testing/toy_problem.h"
#include "motley/testing/wide_mlp.h"

namespace motley::search {
namespace {

class SpmdPlannerTest : public WideMlpTest {
 protected:
  plan::PlanOutcome plan(const std::string& name) {
    const auto planner = make_planner(name, evaluator_->inputs());
    const auto outcome = (*planner)->plan(problem_);
    EXPECT_TRUE(outcome) << outcome.error().message;
    return outcome ? *outcome : plan::PlanOutcome{};
  }
};

TEST_F(SpmdPlannerTest, PlansAreValidAndPricedAsTheyAreSimulated) {
  set_up(4096, "");
  for (const char* name : {"spmd", "hap"}) {
    const plan::PlanOutcome outcome = plan(name);
    ASSERT_TRUE(outcome.plan) << name;
    EXPECT_TRUE(plan::verify_plan(*outcome.plan, model_.hash, cluster_)) << name;
    const auto program = synth::lower(model_.graph, *outcome.plan, cluster_);
    ASSERT_TRUE(program) << program.error().message;
    const auto trace = simulate::simulate(*program, *costs_.model(cluster_));
    ASSERT_TRUE(trace) << trace.error().message;
    EXPECT_EQ(trace::median_step(*trace), outcome.predicted_step) << name;
    EXPECT_LE(outcome.lower_bound, outcome.predicted_step) << name;
  }
}

TEST_F(SpmdPlannerTest, BeatsSplitsOfTheBatchWhereWeightsAreLarge) {
  set_up(4096, "");
  const plan::PlanOutcome best = plan("auto"), split = plan("split");
  ASSERT_TRUE(best.plan && split.plan);
  EXPECT_LT(best.predicted_step.value, 0.98 * split.predicted_step.value);
  EXPECT_TRUE(plan::splits_operators(*best.plan));
  EXPECT_LE(best.predicted_step, plan("hap").predicted_step);
  EXPECT_THAT(best.why, ::testing::Contains(::testing::HasSubstr("second: split by")));
}

// Exchanges of activations take half a layer's compute time, which the other micro-batch's layer
// hides. Run one after the other, micro-batches wait for them.
TEST_F(SpmdPlannerTest, MicroBatchesTakeTurnsWhereExchangesWouldBeWaitedFor) {
  bandwidth_ = "100Gbps";
  set_up(deep_text(6, 8192), "", 4096);
  const plan::PlanOutcome best = plan("auto");
  ASSERT_TRUE(best.plan);
  EXPECT_EQ(best.plan->replicas[0].micro_batches, 2);
  EXPECT_EQ(best.plan->replicas[0].turns, 2);
  EXPECT_TRUE(plan::verify_plan(*best.plan, model_.hash, cluster_));
  EXPECT_LE(best.lower_bound, best.predicted_step);
  EXPECT_THAT(best.why, ::testing::Contains(::testing::HasSubstr("2 of which take turns")));
  const auto program = synth::lower(model_.graph, *best.plan, cluster_);
  ASSERT_TRUE(program) << program.error().message;
  const auto trace = simulate::simulate(*program, *costs_.model(cluster_));
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace::median_step(*trace), best.predicted_step);
  plan::Plan one_by_one = *best.plan;
  one_by_one.replicas[0].turns = 1;
  const auto price = evaluator_->price(one_by_one);
  ASSERT_TRUE(price) << price.error().message;
  EXPECT_GT(price->step.value, 1.15 * best.predicted_step.value);
  // A requested number of micro-batches runs interleaved, two at a time.
  const Accumulating asked(evaluator_->inputs(), *make_planner("auto", evaluator_->inputs()), 8);
  const auto outcome = asked.plan(problem_);
  ASSERT_TRUE(outcome && outcome->plan);
  EXPECT_EQ(outcome->plan->replicas[0].micro_batches, 8);
  EXPECT_EQ(outcome->plan->replicas[0].turns, 2);
}

TEST_F(SpmdPlannerTest, TakesLargerBucketsWhereTheyAreQuicker) {
  bandwidth_ = "100Gbps";
  for (const int width : {512, 1024, 2048}) {
    set_up(deep_text(6, width), "", 4096);
    const plan::PlanOutcome usual = plan("spmd");
    problem_.most_bucket_bytes = Bytes(16 << 20);
    const plan::PlanOutcome best = plan("spmd");
    problem_.most_bucket_bytes = Bytes(0);
    ASSERT_TRUE(usual.plan && best.plan);
    EXPECT_EQ(usual.plan->bucket_bytes, problem_.bucket_bytes);
    EXPECT_LE(best.predicted_step, usual.predicted_step) << width;
    EXPECT_LE(best.lower_bound, best.predicted_step) << width;
    const auto price = evaluator_->price(*best.plan);
    ASSERT_TRUE(price) << price.error().message;
    EXPECT_EQ(price->step, best.predicted_step);
  }
}

TEST_F(SpmdPlannerTest, TakesAsManyMicroBatchesAsSomebodyAskedFor) {
  set_up(4096, "");
  std::map<std::string, Seconds> steps;
  for (const std::string name : {"auto", "split", "spmd", "equal"}) {
    const Accumulating planner(evaluator_->inputs(), *make_planner(name, evaluator_->inputs()), 4);
    const auto outcome = planner.plan(problem_);
    ASSERT_TRUE(outcome) << name << ": " << outcome.error().message;
    ASSERT_TRUE(outcome->plan) << name;
    EXPECT_TRUE(plan::verify_plan(*outcome->plan, model_.hash, cluster_)) << name;
    EXPECT_EQ(outcome->plan->global_batch, problem_.global_batch);
    EXPECT_EQ(outcome->plan->batch_norm_span, plan::BatchNormSpan::kStep);  // it has no batch norm
    for (const plan::Replica& replica : outcome->plan->replicas)
      EXPECT_EQ(replica.micro_batches, 4) << name;
    const auto program = synth::lower(model_.graph, *outcome->plan, cluster_);
    ASSERT_TRUE(program) << name << ": " << program.error().message;
    const auto trace = simulate::simulate(*program, *costs_.model(cluster_));
    ASSERT_TRUE(trace) << trace.error().message;
    EXPECT_EQ(trace::median_step(*trace), outcome->predicted_step) << name;
    EXPECT_LE(outcome->lower_bound, outcome->predicted_step) << name;
    steps[name] = outcome->predicted_step;
  }
  // Gradients of 128 MiB are exchanged once over a slow link.
  EXPECT_LE(steps["auto"], steps["split"]);
  EXPECT_LE(steps["split"], steps["equal"]);
  const auto inputs = evaluator_->inputs();
  EXPECT_EQ(Accumulating(inputs, *make_planner("equal", inputs), 3).plan(problem_).error().code,
            "search.micro-batches");
}

TEST_F(SpmdPlannerTest, KeepsParametersInPartsWhereTheyDoNotFitWhole) {
  // Two weights of 1 GiB and their gradients; half of that and the framework fit.
  set_up(16384, "4GiB");
  EXPECT_FALSE(plan("split").plan);
  const plan::PlanOutcome outcome = plan("auto");
  ASSERT_TRUE(outcome.plan);
  for (const auto& [device, peak] : outcome.peak) EXPECT_LE(peak, *cluster_.device(device).memory);
}

TEST_F(SpmdPlannerTest, TakesMicroBatchesWhereActivationsDoNotFit) {
  // Besides the framework's 512 MiB: 16 MiB of weights and gradients, 16 MiB per activation.
  set_up(1024, "555MiB", 4096);
  const plan::PlanOutcome outcome = plan("auto");
  ASSERT_TRUE(outcome.plan);
  EXPECT_TRUE(plan::verify_plan(*outcome.plan, model_.hash, cluster_));
  EXPECT_GT(outcome.plan->replicas[0].micro_batches, 1);
  for (const auto& [device, peak] : outcome.peak) EXPECT_LE(peak, *cluster_.device(device).memory);
  EXPECT_LE(outcome.lower_bound, outcome.predicted_step);
  const auto program = synth::lower(model_.graph, *outcome.plan, cluster_);
  ASSERT_TRUE(program) << program.error().message;
  const auto trace = simulate::simulate(*program, *costs_.model(cluster_));
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace::median_step(*trace), outcome.predicted_step);
  EXPECT_THAT(outcome.why, ::testing::Contains(::testing::HasSubstr("micro-batches")));
}

TEST_F(SpmdPlannerTest, NoOtherNumberOfMicroBatchesIsClearlyQuicker) {
  std::vector<int> limits{615, 630, 600, 620, 640};
  limits.resize(testing::rounds(2, limits.size()));
  for (const int mebibytes : limits) {
    set_up(2048, fmt::format("{}MiB", mebibytes), 4096);
    const plan::PlanOutcome best = plan("auto");
    const auto inputs = evaluator_->inputs();
    for (const std::int64_t times : {1, 4, 16, 64}) {
      const auto asked = Accumulating(inputs, *make_planner("spmd", inputs), times).plan(problem_);
      ASSERT_TRUE(asked) << asked.error().message;
      if (!asked->plan) continue;
      ASSERT_TRUE(best.plan) << mebibytes << " MiB, " << times << " micro-batches";
      EXPECT_LT(best.predicted_step.value, 1.1 * asked->predicted_step.value)
          << mebibytes << " MiB, " << times << " micro-batches";
    }
  }
}

// A single device; the activations of 4096 samples, 16 MiB each, do not fit.
TEST_F(SpmdPlannerTest, OneDeviceTakesMicroBatches) {
  set_up(1024, "555MiB", 4096);
  problem_.devices.resize(1);
  EXPECT_FALSE(plan("split").plan);
  const plan::PlanOutcome outcome = plan("auto");
  ASSERT_TRUE(outcome.plan);
  EXPECT_TRUE(plan::verify_plan(*outcome.plan, model_.hash, cluster_));
  const std::int64_t times = outcome.plan->replicas[0].micro_batches;
  EXPECT_GT(times, 1);
  EXPECT_LE(outcome.peak.at(0).second, *cluster_.devices[0].memory);
  EXPECT_THAT(outcome.why,
              ::testing::ElementsAre(fmt::format("a:0 does all, in {} micro-batches of {} samples",
                                                 times, 4096 / times)));
}

// The columns' maxima over the batch forbid micro-batches; each activation has 256 MiB.
TEST_F(SpmdPlannerTest, SaysWhichOperatorForbidsMicroBatches) {
  set_up(
      "motley.graph/1\nname \"tops\"\nsize batch 1 4096\n"
      "input %0: f32[batch, 16384] \"x\"\nparam %1: f32[16384] \"w\"\ntangent %2: f32[]\n"
      "op %3: f32[batch, 16384] = aten::mul.Tensor(%0, %1) fwd \"scale\"\n"
      "op %4: f32[16384] = aten::amax(%3, [0], false) fwd \"top\"\n"
      "op %5: f32[] = aten::sum(%4, none) fwd \"\"\n"
      "op %6: f32[batch, 16384] = aten::expand(%2, [size(batch), 16384], false) bwd \"\"\n"
      "op %7: f32[batch, 16384] = aten::mul.Tensor(%6, %0) bwd \"scale\"\n"
      "op %8: f32[16384] = aten::sum.dim_IntList(%7, [0], false, none) bwd \"scale\"\n"
      "output loss %5\noutput gradient %8 of \"w\"\n",
      "600MiB", 4096);
  const auto says_so = ::testing::Contains(
      ::testing::HasSubstr("micro-batches: operator aten::amax in module 'top' needs all samples"));
  for (const std::size_t devices : {2u, 1u}) {
    problem_.devices.resize(devices);
    const plan::PlanOutcome outcome = plan("auto");
    EXPECT_FALSE(outcome.plan);
    EXPECT_THAT(outcome.why, says_so) << devices;
  }
}

TEST_F(SpmdPlannerTest, GivesWhatItHasAtTheTimeLimit) {
  set_up(4096, "");
  const std::optional<Seconds> no_limit = problem_.time_limit;
  for (const char* name : {"spmd", "auto"}) {
    problem_.time_limit = no_limit;
    const plan::PlanOutcome best = plan(name);
    problem_.time_limit = Seconds(0);
    const plan::PlanOutcome outcome = plan(name);
    ASSERT_TRUE(outcome.plan) << name;
    EXPECT_EQ(outcome.reason, plan::Reason::kLimit) << name;
    EXPECT_TRUE(plan::verify_plan(*outcome.plan, model_.hash, cluster_)) << name;
    EXPECT_LT(outcome.considered, best.considered) << name;
    EXPECT_GT(outcome.lower_bound.value, 0) << name;
    EXPECT_LE(outcome.lower_bound, best.predicted_step) << name;
    EXPECT_GE(outcome.predicted_step, best.predicted_step) << name;
    EXPECT_THAT(outcome.why, ::testing::Contains(::testing::HasSubstr("time limit"))) << name;
  }
  problem_.time_limit = no_limit;
  const plan::PlanOutcome best = plan("spmd");
  problem_.time_limit = Seconds(3600);
  const plan::PlanOutcome unhurried = plan("spmd");
  EXPECT_EQ(unhurried.plan, best.plan);
  EXPECT_EQ(unhurried.reason, best.reason);
}

TEST_F(SpmdPlannerTest, MayFindNothingThatFitsWithinTheTimeLimit) {
  set_up(1024, "555MiB", 4096);  // only micro-batches fit, which are tried last
  problem_.time_limit = Seconds(0);
  const plan::PlanOutcome outcome = plan("spmd");
  EXPECT_FALSE(outcome.plan);
  EXPECT_EQ(outcome.reason, plan::Reason::kLimit);
  EXPECT_THAT(outcome.why, ::testing::Contains(::testing::HasSubstr("time limit")));
}

TEST_F(SpmdPlannerTest, OneDeviceHasNothingToShare) {
  set_up(1024, "");
  problem_.devices = {DeviceId(0)};
  for (const char* name : {"spmd", "hap", "auto"}) {
    const plan::PlanOutcome outcome = plan(name);
    ASSERT_TRUE(outcome.plan) << name;
    EXPECT_FALSE(plan::splits_operators(*outcome.plan)) << name;
  }
}

TEST_F(SpmdPlannerTest, ShardsOverSeveralDevicesOnly) {
  for (const int width : {64, 512, 4096}) {
    set_up(width, "");
    const plan::PlanOutcome outcome = plan("spmd");
    ASSERT_TRUE(outcome.plan);
    EXPECT_TRUE(plan::verify_plan(*outcome.plan, model_.hash, cluster_));
    EXPECT_EQ(plan::members(*outcome.plan).size(), 2u) << width;
  }
}

TEST_F(SpmdPlannerTest, SaysWhatIsShortWhereNothingFits) {
  set_up(16384, "2GiB");
  const plan::PlanOutcome outcome = plan("spmd");
  EXPECT_FALSE(outcome.plan);
  EXPECT_EQ(outcome.reason, plan::Reason::kInfeasible);
  EXPECT_THAT(outcome.why, ::testing::Contains(::testing::HasSubstr("short")));
}

constexpr const char* kSaidBefore =
    "found before its parts were measured, when what follows was said of it; what was found since "
    "takes longer";

/// 1 s per sample on n0:0, 2 s on n1:0, which holds 10 bytes plus one per sample; 6 samples.
class ReconsiderTest : public ::testing::Test {
 protected:
  explicit ReconsiderTest(std::int64_t memory = 12) {
    toy_.group = no_exchange;
    toy_.add_device(linear_device(1));
    TableEvaluator::Device slow = linear_device(2);
    slow.base = Bytes(10);
    slow.per_sample = Bytes(1);
    toy_.add_device(slow, Bytes(memory));
    toy_.finish(6);
  }

  /// Returns the plan that gives the second device this many samples.
  plan::Plan give(std::int64_t samples) const {
    if (samples == 0) return make_split_plan(toy_.problem, {{DeviceId(0)}, {6}});
    return make_split_plan(toy_.problem, {{DeviceId(0), DeviceId(1)}, {6 - samples, samples}});
  }

  /// Reconsiders known plans after a search that found the first device alone.
  plan::PlanOutcome reconsidered(std::vector<plan::Plan> known, double bound = 3) {
    plan::PlanOutcome outcome;
    outcome.plan = give(0);
    outcome.planner = "auto";
    outcome.reason = reason_;
    outcome.predicted_step = Seconds(6);
    outcome.lower_bound = Seconds(bound);
    outcome.peak = {{DeviceId(0), Bytes(0)}};
    outcome.idle = {DeviceId(1)};
    outcome.considered = 7;
    outcome.why = {"as it was"};
    if (!known.empty()) toy_.problem.known.clear();
    for (plan::Plan& plan : known) toy_.problem.known.push_back({std::move(plan), {"said then"}});
    done_ = reconsider_known(toy_.inputs(), toy_.problem, outcome);
    return outcome;
  }

  ToyProblem toy_;
  plan::Reason reason_ = plan::Reason::kFeasible;
  Result<void> done_;
};

// 5 : 1 takes 5 s; 4 : 2 takes 4 s on both and needs 12 bytes of 12.
TEST_F(ReconsiderTest, TheBestEarlierPlanIsTakenWithAllThatBelongsToIt) {
  const plan::PlanOutcome outcome = reconsidered({give(1), give(2), give(1)});
  ASSERT_TRUE(done_) << done_.error().message;
  EXPECT_EQ(outcome.plan, give(2));
  EXPECT_DOUBLE_EQ(outcome.predicted_step.value, 4);
  EXPECT_THAT(outcome.peak, ::testing::ElementsAre(std::pair(DeviceId(0), Bytes(0)),
                                                   std::pair(DeviceId(1), Bytes(12))));
  EXPECT_THAT(outcome.idle, ::testing::IsEmpty());
  EXPECT_DOUBLE_EQ(outcome.lower_bound.value, 3);
  EXPECT_EQ(outcome.reason, plan::Reason::kFeasible);
  EXPECT_EQ(outcome.considered, 10);
  EXPECT_THAT(outcome.why, ::testing::ElementsAre(kSaidBefore, "said then"));
  toy_.problem.known[1].why = outcome.why;  // `why` of the previous planning
  EXPECT_EQ(reconsidered({}).why, outcome.why);
}

TEST_F(ReconsiderTest, APlanAtTheBoundIsOptimal) {
  EXPECT_EQ(reconsidered({give(2)}, 4).reason, plan::Reason::kOptimal);
  ASSERT_TRUE(done_);
}

// A bound above a known plan's step is wrong and must be reported.
TEST_F(ReconsiderTest, ABoundAboveAnEarlierPlanIsAnError) {
  reconsidered({give(2)}, 5);
  ASSERT_FALSE(done_);
  EXPECT_EQ(done_.error().code, "search.bound");
  EXPECT_EQ(done_.error().message,
            "the lower bound of all plans, 5 s, is above the step of the plan that planner auto "
            "found, 4 s: the bound is wrong");
}

// Half the samples on the slower device also take 6 s: no reason to change.
TEST_F(ReconsiderTest, AnEarlierPlanThatTakesAsLongIsNotTaken) {
  toy_.cluster->devices[1].memory.reset();
  const plan::PlanOutcome outcome = reconsidered({give(3)});
  EXPECT_EQ(outcome.plan, give(0));
  EXPECT_EQ(outcome.considered, 8);
  EXPECT_THAT(outcome.why, ::testing::ElementsAre("as it was"));
}

TEST_F(ReconsiderTest, WhatWasFoundIsNotConsideredAgain) {
  const plan::PlanOutcome outcome = reconsidered({give(0)});
  EXPECT_EQ(outcome.considered, 7);
  EXPECT_THAT(outcome.why, ::testing::ElementsAre("as it was"));
}

class ReconsiderInLessMemory : public ReconsiderTest {
 protected:
  ReconsiderInLessMemory() : ReconsiderTest(11) {}
};

TEST_F(ReconsiderInLessMemory, WhatFitsNoLongerIsPassedOver) {
  EXPECT_EQ(reconsidered({give(2)}).plan, give(0));
  EXPECT_EQ(reconsidered({give(2), give(1)}).plan, give(1));
  EXPECT_EQ(reconsidered({give(2), give(1)}).considered, 9);
}

/// Cannot price plans of two devices.
class AloneEvaluator : public TableEvaluator {
 public:
  using TableEvaluator::TableEvaluator;
  Result<plan::Price> price(const plan::Plan& plan) const override {
    if (plan::members(plan).size() > 1) return usage_error("cost.missing", "nobody knows");
    return TableEvaluator::price(plan);
  }
};

TEST_F(ReconsiderTest, WhatCannotBePricedAnyMoreIsPassedOver) {
  toy_.evaluator = std::make_unique<AloneEvaluator>(toy_.tables, toy_.group);
  const plan::PlanOutcome outcome = reconsidered({give(2)});
  ASSERT_TRUE(done_);
  EXPECT_EQ(outcome.plan, give(0));
  EXPECT_EQ(outcome.considered, 7);
}

// A search that ended at the time limit reports this, whichever plan is best.
TEST_F(ReconsiderTest, ASearchThatWasEndedStaysSo) {
  reason_ = plan::Reason::kLimit;
  const plan::PlanOutcome outcome = reconsidered({give(1), give(2)});
  EXPECT_EQ(outcome.plan, give(2));
  EXPECT_EQ(outcome.reason, plan::Reason::kLimit);
  EXPECT_THAT(
      outcome.why,
      ::testing::ElementsAre(kSaidBefore, "said then",
                             "the time limit ended the search: more time may find a better plan"));
}

}  // namespace
}  // namespace motley::search
