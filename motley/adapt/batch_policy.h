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

/// What a training is to be good at.
enum class ObjectiveKind {
  kTime,      ///< over soon
  kCost,      ///< cheap: BatchOption::per_hour
  kDeadline,  ///< the cheapest that is over in time, while something is; else as soon as can be
};
struct Objective {
  ObjectiveKind kind = ObjectiveKind::kTime;
  Seconds deadline;  ///< since the run began
};

struct BatchSettings {
  double initial_batch = 1;  ///< that the learning rate was chosen for
  BatchBounds bounds;        ///< samples a step
  LearningRateRule rule = LearningRateRule::kAdaScale;
  Objective objective;
  Seconds change{0.3};  ///< that training stands still for another batch, split or group
  /// Steps of the initial batch until the end; 0: not known. kDeadline needs it.
  double iterations = 0;
  double most_lr_change = 2;  ///< of the learning rate at once, in times
  std::vector<double> memories = NoiseOptions().memories;
};

/// Chooses the batch with the devices that compute it and its split: policy "motley".
///
/// Progress of a step is its gain in steps of the initial batch (learning_rate.h); worth of a batch
/// on a group of devices is progress a second, or a unit of money. For each group the best batch
/// follows in closed form (batch_choice.h) at each end of the noise scale's interval and in its
/// middle. What is saved for sure by such a batch is the least over both ends: the interval is the
/// hysteresis, and a batch grows only as far as the lower end says that it pays.
///
/// What is saved for sure adds up over the steps that go on as before; when it reaches what a
/// change costs, the change is made. So never more than about twice is lost of what is lost by one
/// who knows how long the noise stays (the rule of renting or buying), and nothing changes that
/// would not pay until the end, where that is known. The learning rate follows by its rule, bounded
/// a change, and anew where its rule at both ends says so.
///
/// How often noise is measured follows what it costs and brings (noise_pace.h).
///
/// A device with a notice or that is lost is in no group from then on, at once; one that arrives is
/// in them again. What others make of the plan meanwhile (control plans anew for who is there) is
/// what is judged from the next step on. O(groups x points) an observation of noise, more where
/// curves change.
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
  /// Better: in time before not in time, then by rate.
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
  std::vector<std::int64_t> rooms_;             // samples that it takes, at the same
  std::map<std::pair<std::size_t, std::int64_t>, Target> targets_;  // made, at the same
  std::optional<std::int64_t> least_version_;

  // The state, beside that of the source and of the noise.
  std::vector<policy::Share> shares_;     // of the last step; empty: not known
  std::vector<policy::Share> known_;      // of the last one of which they were known
  std::vector<policy::Share> pending_;    // asked for and not yet seen
  std::vector<policy::Share> replaced_;   // of the step when it was asked for
  std::int64_t waited_ = 0;               // steps since then
  Seconds at_, took_;                     // of the last step
  double regret_ = 0;                     // seconds that a change would have saved for sure
  double lr_factor_ = 1, lr_before_ = 1;  // as asked for last, and before that
  double progress_ = 0;                   // steps of the initial batch
};

}  // namespace motley::adapt
