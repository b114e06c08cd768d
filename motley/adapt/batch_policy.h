#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "motley/adapt/batch_choice.h"
#include "motley/adapt/learning_rate.h"
#include "motley/adapt/noise_pace.h"
#include "motley/adapt/noise_scale.h"
#include "motley/adapt/option_source.h"
#include "motley/base/json_forward.h"
#include "motley/policy/policy.h"

namespace motley::adapt {

/// What a training optimizes.
enum class ObjectiveKind {
  kTime,      ///< shortest time
  kCost,      ///< lowest cost: BatchOption::per_hour
  kDeadline,  ///< cheapest option in time while there is one, else the fastest
};
struct Objective {
  ObjectiveKind kind = ObjectiveKind::kTime;
  Seconds deadline;  ///< since the run began
};

struct BatchSettings {
  double initial_batch = 1;  ///< the one that the learning rate was chosen for
  BatchBounds bounds;        ///< samples per step
  LearningRateRule rule = LearningRateRule::kAdaScale;
  Objective objective;
  Seconds change{0.3};  ///< pause of training for a change of batch, split or group
  /// Steps of the initial batch until the end; 0: unknown. kDeadline needs it.
  double iterations = 0;
  double most_lr_change = 2;  ///< largest factor of one change of the learning rate
  std::vector<double> memories = NoiseOptions().memories;
};

/// Chooses the batch together with its devices and split: policy "motley".
///
/// A step's progress is its gain in steps of the initial batch (learning_rate.h). The worth of a
/// batch on a group of devices is progress per second or per unit of money. Each group's best batch
/// follows in closed form (batch_choice.h), at both ends of the noise scale's interval and in the
/// middle. The sure saving of a batch is the least over both ends: the interval is the hysteresis,
/// and a batch grows only as far as the lower end supports.
///
/// Sure savings add up over the steps without a change; when they reach the cost of a change, it is
/// made. So at most about twice the loss of an oracle that knows how long the noise stays is lost
/// (rent or buy). Nothing changes that would not pay until a known end. The learning rate follows
/// its rule, with bounded changes, and is adjusted again where the rule at both ends demands it.
///
/// How often noise is measured depends on cost and benefit (noise_pace.h).
///
/// A device with a notice, or lost, leaves all groups at once; an arriving one rejoins them. When
/// others change the plan meanwhile (control replans for the present devices), the policy judges
/// that plan from the next step on. O(groups x points) per observation of noise, more where curves
/// change.
class BatchPolicy : public policy::Policy {
 public:
  BatchPolicy(BatchSettings settings, std::unique_ptr<OptionSource> source);

  std::string_view name() const override { return "motley"; }
  std::vector<policy::Choice> observe(const policy::Observation& observation) override;
  Json state() const override;
  Result<void> restore(const Json& state, const std::string& where) override;

 private:
  /// A group of devices and a batch on it.
  struct Target {
    int option = -1;
    std::int64_t batch = 0;
    Seconds step;
  };
  /// Ordered by being in time, then by rate.
  struct Worth {
    bool is_in_time = true;
    double rate = 0;
  };
  std::vector<policy::Choice> see_step(const policy::StepSeen& step);
  std::vector<policy::Choice> see_noise(const policy::NoiseSeen& seen);
  std::vector<policy::Choice> leave(const std::string& device);
  std::vector<policy::Choice> change_to(const Target& target, const NoiseInterval& noise,
                                        std::string why);
  std::vector<policy::Choice> follow_rate(const NoiseInterval& noise);
  std::vector<policy::Choice> judge_noise(const NoiseInterval& noise, Seconds since);
  std::vector<policy::Choice> follow_pace(const NoiseInterval& noise);
  void measure_each(std::vector<policy::Choice>& choices, const std::string& why);
  Worth judge(int option, double batch, Seconds step, double noise) const;
  Worth judge(const Target& target, double noise) const;
  static bool is_better(const Worth& one, const Worth& other);
  double saved(const Target& from, const Target& to, double noise) const;
  std::optional<Target> find_best(double noise, const BatchBounds& bounds);
  Target make_target(std::size_t option, std::int64_t batch);
  std::optional<Target> now() const;
  void refresh();

  BatchSettings settings_;
  std::unique_ptr<OptionSource> source_;
  NoiseScale noise_;
  NoisePace pace_;
  std::vector<std::vector<CurvePoint>> least_;  // of each option, at `least_version_`
  std::vector<std::int64_t> rooms_;             // samples it takes, at the same version
  std::map<std::pair<std::size_t, std::int64_t>, Target> targets_;  // results, at the same version
  std::optional<std::int64_t> least_version_;

  // The policy's own state; source and noise have theirs.
  std::vector<policy::Share> shares_;     // of the last step; empty: unknown
  std::vector<policy::Share> known_;      // the last known ones
  std::vector<policy::Share> pending_;    // requested and not yet seen
  std::vector<policy::Share> replaced_;   // of the step at the request
  std::int64_t waited_ = 0;               // steps since the request
  Seconds at_, took_;                     // of the last step
  double regret_ = 0;                     // seconds that a change would surely have saved
  double lr_factor_ = 1, lr_before_ = 1;  // last requested, and the one before
  double progress_ = 0;                   // steps of the initial batch
};

}  // namespace motley::adapt
