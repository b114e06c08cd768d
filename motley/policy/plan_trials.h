#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "motley/policy/policy.h"

namespace motley::policy {

/// A plan that may be tried: with the same batch and result as the others.
struct TriedPlan {
  std::string label;                 ///< "split by operators over 3 devices"
  std::optional<Seconds> predicted;  ///< of a step
};

struct TrialOptions {
  int settling = 1;  ///< steps of a plan that do not count: the first touches memory
  int looking = 3;   ///< steps that do, before the next is tried
  int closer = 10;   ///< steps that do, of each that is about as quick as the fastest
  /// What "about" is: a part of the fastest's. Of three steps neither the median nor how they
  /// differ is known better, and a few steps of a plan that is so near cost less than one.
  double near = 0.15;
  /// What a prediction counts for beside what was measured, in logarithms: machines drift by some
  /// 3 % while plans are tried, predictions are off by some 15 %; the squares' ratio.
  double belief = 0.04;
  /// A plan whose first step that counts takes so many times the fastest's is left at once.
  double hopeless = 1.5;
  /// Steps of the plan that was taken, of which the median says whether it still is the fastest.
  int watching = 30;
};

/// Which plan is the fastest is measured, not believed: each is trained by for a few steps, the
/// first one first, and the fastest goes on. Where the medians of two are near each other, both
/// get a closer look; where they are identical then, what was predicted decides. Afterwards it
/// watches: where the steps become slower than what another one took, by more than the spread, it
/// is tried again (each time twice as many steps later at the earliest).
///
/// What it costs: (settling + looking) steps of each plan, less what the fastest would have taken,
/// and for hopeless ones one step. While the next plan is prepared the fastest known is not gone
/// back to: these steps are the tried one's.
class PlanTrials : public Policy {
 public:
  /// `plans`: by the number that UsePlan and StepSeen say; the run begins with plan 0.
  explicit PlanTrials(std::vector<TriedPlan> plans, const TrialOptions& options = {});
  std::string_view name() const override { return "motley"; }
  std::vector<Choice> observe(const Observation& observation) override;
  Json state() const override;
  Result<void> restore(const Json& state, const std::string& where) override;
  /// Median of the steps of a plan that counted; none: it was not tried.
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
  int wanted_ = 0;   // plan that was asked for, or runs
  int settled_ = 0;  // steps of it that were let by
  bool is_decided_ = false;
  std::vector<std::vector<double>> steps_;  // by plan, of those that counted
  std::vector<bool> is_refused_;            // by plan
  std::vector<double> recent_;              // of the plan that was taken, since
  std::int64_t patience_ = 0;               // steps to be seen before another is tried again
};

}  // namespace motley::policy
