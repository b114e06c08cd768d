#include "motley/policy/plan_trials.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "motley/base/json.h"

namespace motley::policy {
namespace {

/// A run where plan i takes seconds[i], with jitter; a change begins `lag` steps after its request.
struct Course {
  std::vector<double> seconds;
  double jitter = 0;
  int lag = 3;
  std::map<int, double> later = {};  ///< seconds of plans from step 200 on
  int seed = 7;

  int plan = 0, steps = 0;
  double spent = 0;
  std::vector<int> begun = {};

  void run(Policy& policy, int until) {
    std::mt19937 random(static_cast<unsigned>(seed));
    std::normal_distribution<double> normal;
    int asked = -1, begins = 0;
    for (; steps < until; ++steps) {
      if (asked >= 0 && steps >= begins) {
        plan = asked;
        begun.push_back(plan);
        asked = -1;
      }
      double took = seconds[static_cast<std::size_t>(plan)];
      if (steps >= 200 && later.contains(plan)) took = later[plan];
      took *= std::exp(jitter * normal(random));
      spent += took;
      const auto choices =
          policy.observe(StepSeen{.step = steps, .took = Seconds(took), .plan = plan});
      for (const Choice& choice : choices) {
        const int wanted = std::get<UsePlan>(choice.action).plan;
        if (wanted == plan) continue;
        asked = wanted;
        begins = steps + lag;
      }
    }
  }
};

std::vector<TriedPlan> plans(std::size_t count) {
  std::vector<TriedPlan> made;
  for (std::size_t i = 0; i < count; ++i)
    made.push_back({"plan " + std::to_string(i), Seconds(0.04 + 0.001 * static_cast<double>(i))});
  return made;
}

// The sharding was predicted at 40 ms and takes 76; the split takes 49.
TEST(PlanTrials, TakesTheFastestMeasured) {
  PlanTrials policy(plans(3));
  Course course{.seconds = {0.076, 0.049, 0.060}, .jitter = 0.02};
  course.run(policy, 100);
  EXPECT_TRUE(policy.is_decided());
  EXPECT_EQ(course.plan, 1);
  EXPECT_EQ(course.begun, (std::vector<int>{1, 2, 1}));
  // Two trials of 1 + 3 steps and 3 of lag cost less than 20 steps of the best beyond its own 100.
  EXPECT_LT(course.spent, 120 * 0.049);
}

TEST(PlanTrials, LeavesAHopelessPlanAfterOneStep) {
  PlanTrials policy(plans(2));
  Course course{.seconds = {0.05, 0.5}, .lag = 0};
  course.run(policy, 30);
  EXPECT_EQ(course.plan, 0);
  EXPECT_EQ(policy.measured(1)->value, 0.5);
  // 28 steps of 0.05; two of 0.5: one settles, one counts.
  EXPECT_NEAR(course.spent, 28 * 0.05 + 2 * 0.5, 1e-9);
}

// Steps of a mixture of experts differ by a tenth with their samples. With three steps each, the
// slower of two plans a ninth apart wins in a tenth of the runs.
TEST(PlanTrials, LooksCloserAtPlansThatTakeAboutAsLong) {
  int wrong = 0;
  double extra = 0;
  for (int seed = 0; seed < 200; ++seed) {
    PlanTrials policy(plans(2));
    Course course{.seconds = {0.112, 0.1}, .jitter = 0.1, .seed = seed};
    course.run(policy, 60);
    EXPECT_TRUE(policy.is_decided());
    wrong += course.plan != 1;
    extra += course.spent / 0.1 - 60;
  }
  EXPECT_LE(wrong, 6);
  EXPECT_LE(extra / 200, 4);
}

// Measured 3.74 and 3.68 ms on a machine that drifts by more. Predicted 3.9 and 6: the first stays.
// Where the second was predicted as fast, it is taken.
TEST(PlanTrials, PredictionsTellPlansApartThatTakeAboutAsLong) {
  for (const auto& [predicted, taken] : {std::pair{0.006, 0}, {0.0039, 1}}) {
    PlanTrials policy({{"alone", Seconds(0.0039)}, {"split", Seconds(predicted)}});
    Course course{.seconds = {0.00374, 0.00368}};
    course.run(policy, 60);
    EXPECT_TRUE(policy.is_decided());
    EXPECT_EQ(course.plan, taken);
  }
}

TEST(PlanTrials, TriesAgainWhatWasQuickerThanStepsAreNow) {
  PlanTrials policy(plans(2));
  Course course{.seconds = {0.05, 0.06}, .jitter = 0.01, .later = {{0, 0.09}}};
  course.run(policy, 200);
  EXPECT_EQ(course.plan, 0);
  course.run(policy, 320);
  EXPECT_EQ(course.plan, 1);
}

TEST(PlanTrials, DoesWithoutAPlanThatIsRefused) {
  PlanTrials policy(plans(2));
  for (int step = 0; step < 4; ++step)
    (void)policy.observe(StepSeen{.step = step, .took = Seconds(0.05)});
  const auto choices = policy.observe(RefusalSeen{1, 0, "rank 1: out of memory"});
  ASSERT_EQ(choices.size(), 1u);
  EXPECT_EQ(std::get<UsePlan>(choices[0].action).plan, 0);
  EXPECT_EQ(choices[0].why, "no other can be had");
}

// Restored after any number of steps, a policy chooses as the one that continues.
TEST(PlanTrials, ItsStateIsAllThatItsChoicesDependOn) {
  for (int cut = 0; cut < 40; cut += 3) {
    PlanTrials first(plans(3));
    Course course{.seconds = {0.06, 0.05, 0.055}, .jitter = 0.05};
    course.run(first, cut);
    PlanTrials second(plans(3));
    ASSERT_TRUE(second.restore(parse_json(first.state().dump(), "s").value(), "s"));
    for (int step = cut; step < cut + 40; ++step) {
      const StepSeen seen{
          .step = step, .took = Seconds(0.05 + 0.001 * (step % 5)), .plan = step % 3};
      EXPECT_EQ(first.observe(seen), second.observe(seen));
    }
    EXPECT_EQ(first.state(), second.state());
  }
}

TEST(PlanTrials, RefusesAStateOfOtherPlans) {
  PlanTrials two(plans(2)), three(plans(3));
  EXPECT_EQ(three.restore(two.state(), "policy.json").error().message,
            "policy.json: is no state of these plans: it has 2 plans, wanted 3; run with --resume "
            "never, or with the plans it was of");
  EXPECT_EQ(three.restore(Json{{"schema", "x"}}, "policy.json").error().message,
            "policy.json: is no state of these plans: found schema 'x', wanted "
            "'motley.plan-trials/1'; run with --resume never, or with the plans it was of");
}

}  // namespace
}  // namespace motley::policy
