#include "motley/search/split/water_filling.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "motley/base/random.h"
#include "motley/testing/toy_problem.h"

namespace motley::search {
namespace {

/// A simulator that differs from the model: `seconds` of a plan's members.
class SaidEvaluator : public TableEvaluator {
 public:
  using Say = std::function<double(const std::vector<plan::Member>&)>;
  SaidEvaluator(const ToyProblem& toy, Say say)
      : TableEvaluator(toy.tables, toy.group), say_(std::move(say)) {}
  Result<Seconds> step_time(const plan::Plan& plan) const override {
    ++asked;
    return Seconds(say_(plan::members(plan)));
  }
  mutable std::int64_t asked = 0;

 private:
  Say say_;
};

/// Devices with model times in seconds per sample, and simulated times by `say`.
struct SaidProblem {
  ToyProblem toy;
  SaidEvaluator* evaluator = nullptr;

  SaidProblem(const std::vector<double>& model, std::int64_t batch, SaidEvaluator::Say say) {
    toy.group = no_exchange;
    for (const double seconds : model) toy.add_device(linear_device(seconds));
    toy.finish(batch);
    auto made = std::make_unique<SaidEvaluator>(toy, std::move(say));
    evaluator = made.get();
    toy.evaluator = std::move(made);
  }
  plan::PlanOutcome plan() const {
    auto outcome = WaterFilling(toy.inputs()).plan(toy.problem);
    EXPECT_TRUE(outcome) << outcome.error().message;
    return *std::move(outcome);
  }
};

std::vector<std::int64_t> samples_of_plan(const plan::PlanOutcome& outcome) {
  std::vector<std::int64_t> samples;
  for (const plan::Member& member : plan::members(*outcome.plan)) samples.push_back(member.samples);
  return samples;
}

/// Returns the last device's seconds, at these per sample.
SaidEvaluator::Say last_of(std::vector<double> seconds) {
  return [seconds = std::move(seconds)](const std::vector<plan::Member>& members) {
    double last = 0;
    for (const plan::Member& member : members)
      last = std::max(last, seconds[member.device.index()] * static_cast<double>(member.samples));
    return last;
  };
}

// By the model 8 : 8; simulated, the first is three times slower: 4 : 12 take 12 s, 12 s less.
TEST(WaterFilling, ClimbsFromTheModelsSplit) {
  const SaidProblem said({1, 1}, 16, last_of({3, 1}));
  const plan::PlanOutcome outcome = said.plan();
  EXPECT_EQ(samples_of_plan(outcome), (std::vector<std::int64_t>{4, 12}));
  EXPECT_DOUBLE_EQ(outcome.predicted_step.value, 12);
  EXPECT_DOUBLE_EQ(outcome.lower_bound.value, 8);
  EXPECT_THAT(outcome.why,
              ::testing::Contains(::testing::ContainsRegex(
                  "^[0-9]+ further splits were simulated, as exchanges inside the step hold "
                  "devices up; the best is [0-9.]+ % faster$")));
}

TEST(WaterFilling, EndsWhereNoSampleIsBetterMoved) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SplitMix64 random(seed);
    const std::vector<double> truth = {0.5 + random.uniform(), 0.5 + random.uniform(),
                                       0.5 + random.uniform()};
    const auto say = last_of(truth);
    const SaidProblem said({0.5, 0.5, 0.5}, 12, say);
    const plan::PlanOutcome outcome = said.plan();
    const std::vector<plan::Member> best = plan::members(*outcome.plan);
    const double seconds = say(best);
    for (std::size_t from = 0; from < best.size(); ++from)
      for (std::size_t to = 0; to < best.size(); ++to) {
        if (from == to || best[from].samples == 1) continue;
        std::vector<plan::Member> moved = best;
        --moved[from].samples;
        ++moved[to].samples;
        EXPECT_GE(say(moved), seconds) << "seed " << seed;
      }
  }
}

// If the simulator prefers a baseline, that one is improved.
TEST(WaterFilling, IsNeverWorseThanTheBaselines) {
  // 12 : 4 by the model; the simulator adds 100 s unless the split is equal.
  const SaidProblem said({1, 3}, 16, [](const std::vector<plan::Member>& members) {
    const bool is_equal = members.size() == 2 && members[0].samples == members[1].samples;
    return is_equal ? 50.0 : 100.0;
  });
  const plan::PlanOutcome outcome = said.plan();
  EXPECT_EQ(samples_of_plan(outcome), (std::vector<std::int64_t>{8, 8}));
  EXPECT_DOUBLE_EQ(outcome.predicted_step.value, 50);
}

TEST(WaterFilling, AsksTheSimulatorSoOftenAndNoMore) {
  double less = 1e6;
  const SaidProblem said({1, 1, 1, 1}, 1024, [&](const std::vector<plan::Member>&) {
    return less -= 1;  // every try is better
  });
  const plan::PlanOutcome outcome = said.plan();
  EXPECT_LE(said.evaluator->asked, 3 + 64 + 1);  // and the price of the answer
  EXPECT_GE(said.evaluator->asked, 64);
  EXPECT_GE(outcome.considered, 64);
}

TEST(WaterFilling, AsksNoMoreWhereTheModelIsExact) {
  const SaidProblem said({1, 3}, 16, last_of({1, 3}));
  const plan::PlanOutcome outcome = said.plan();
  EXPECT_EQ(samples_of_plan(outcome), (std::vector<std::int64_t>{12, 4}));
  EXPECT_EQ(outcome.reason, plan::Reason::kOptimal);
  EXPECT_LE(said.evaluator->asked, 4);
}

TEST(WaterFilling, ClimbsWithinMemory) {
  ToyProblem toy;
  toy.group = no_exchange;
  toy.add_device(linear_device(1));
  TableEvaluator::Device small = linear_device(1);
  small.per_sample = Bytes(1);
  toy.add_device(small, Bytes(6));
  toy.finish(16);
  toy.evaluator = std::make_unique<SaidEvaluator>(toy, last_of({3, 1}));
  const auto outcome = WaterFilling(toy.inputs()).plan(toy.problem);
  ASSERT_TRUE(outcome && outcome->plan);
  EXPECT_EQ(samples_of_plan(*outcome), (std::vector<std::int64_t>{10, 6}));
}

/// Nine samples on the second device exceed its memory.
class NineIsTooMuch : public SaidEvaluator {
 public:
  using SaidEvaluator::SaidEvaluator;
  Bytes peak_bytes(DeviceId device, std::int64_t samples, Setting) const override {
    return Bytes(device == DeviceId(1) && samples == 9 ? 100 : samples);
  }
};

// 1.28 s and 1 s per sample: of 16 samples 7 : 9 would take 9 s, 6 : 10 takes 10 s, 8 : 8 10.24 s.
TEST(WaterFilling, ClimbsAroundWhatDoesNotFit) {
  ToyProblem toy;
  toy.group = no_exchange;
  toy.add_device(linear_device(1));
  toy.add_device(linear_device(1), Bytes(50));
  toy.finish(16);
  toy.evaluator = std::make_unique<NineIsTooMuch>(toy, last_of({1.28, 1}));
  const auto outcome = WaterFilling(toy.inputs()).plan(toy.problem);
  ASSERT_TRUE(outcome && outcome->plan);
  EXPECT_EQ(samples_of_plan(*outcome), (std::vector<std::int64_t>{6, 10}));
}

}  // namespace
}  // namespace motley::search
