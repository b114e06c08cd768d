#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "motley/policy/policy.h"

namespace motley::policy {

/// A plan to try: same batch and same result as the others.
struct TriedPlan {
  std::string label;                 ///< "split by operators over 3 devices"
  std::optional<Seconds> predicted;  ///< of a step
};

struct TrialOptions {
  int settling = 1;  ///< first steps of a plan that do not count: they touch memory
  int looking = 3;   ///< steps that count before the next plan is tried
  int closer = 10;   ///< steps that count of each plan close to the fastest
  /// Relative difference to the fastest that is "close". Three steps do not give median and spread
  /// more precisely, and a few steps of so close a plan cost less than one step.
  double near = 0.15;
  /// Weight of a prediction beside a measurement, in logarithms: the ratio of squared errors.
  /// Machines drift by some 3 % while plans are tried; predictions are off by some 15 %.
  double belief = 0.04;
  /// A plan is left at once when its first counting step takes this many times the fastest's.
  double hopeless = 1.5;
  /// Steps of the chosen plan over which the median is checked against the others.
  int watching = 30;
};

/// Finds the fastest plan by measurement. Trains with each plan for a few steps, beginning with the
/// first, then continues with the fastest. Where the medians of two are close, measures both for
/// longer; where they are still equal, the prediction decides. Afterwards it watches: when steps
/// become slower than another plan's by more than the spread, it tries that plan again. The wait
/// before a retry doubles each time.
///
/// Cost: (settling + looking) steps of each plan, less the time that the fastest would have taken,
/// and one step of a hopeless plan. While the next plan is prepared, training does not return to
/// the fastest known plan: these steps belong to the plan being tried.
class PlanTrials : public Policy {
 public:
  /// `plans`: indexed as in UsePlan and StepSeen. The run begins with plan 0.
  explicit PlanTrials(std::vector<TriedPlan> plans, const TrialOptions& options = {});
  std::string_view name() const override { return "motley"; }
  std::vector<Choice> observe(const Observation& observation) override;
  Json state() const override;
  Result<void> restore(const Json& state, const std::string& where) override;
  /// Returns the median of a plan's counted steps; none: not tried.
  std::optional<Seconds> measured(int plan) const;
  bool is_decided() const { return is_decided_; }

 private:
  std::vector<Choice> observe_step(const StepSeen& seen);
  std::vector<Choice> observe_refusal(const RefusalSeen& seen);
  std::vector<Choice> look_further();
  std::vector<Choice> watch(const StepSeen& seen);
  std::vector<Choice> use(int plan, std::string why);
  std::optional<int> find_untried() const;
  std::optional<int> find_fastest() const;
  int find_likeliest() const;
  std::optional<int> find_close(int fastest) const;
  std::string describe(int plan) const;

  std::vector<TriedPlan> plans_;
  TrialOptions options_;
  int wanted_ = 0;   // plan that was requested or runs
  int settled_ = 0;  // its steps that were skipped while settling
  bool is_decided_ = false;
  std::vector<std::vector<double>> steps_;  // by plan, the counted ones
  std::vector<bool> is_refused_;            // by plan
  std::vector<double> recent_;              // of the chosen plan, since the choice
  std::int64_t patience_ = 0;               // steps to see before another plan is tried again
};

}  // namespace motley::policy
