#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/adapt/device_limits.h"
#include "motley/adapt/learned_curves.h"
#include "motley/adapt/option_source.h"
#include "motley/cost/step/step_curves.h"

namespace motley::adapt {

/// A device that does a step by itself, in micro-batches.
struct AloneLimits {
  std::int64_t micro_batches = 2;
  std::int64_t most = kNoMost;           ///< samples a step that its memory holds
  std::optional<CurvePrior> prior = {};  ///< of whole steps
};

/// The first so many devices of a list as a group.
struct LearnedGroup {
  std::size_t devices = 0;
  double per_hour = 0;  ///< what an hour of all of them costs
  /// What is believed of its exchanges; none: nothing.
  std::optional<cost::GroupExchanges> exchanges = {};
  AloneLimits alone = {};  ///< of a group of one
};

/// Groups whose curves are learned from the steps that are taken (learned_curves.h), from a belief
/// or from nothing. Groups are the first devices of a list, the quickest first: a few while the
/// batch is small, more as it grows.
///
///   tail     what the last steps of a group took beyond its devices' own work, in the middle; of a
///            group that has taken none, what is believed of it, off by as much as the next group
///            that has; else as that one
///   hidden   exchanges but the last that is waited for, and from when on: of the last steps
///
/// What a device takes alone is learned apart, as its step then has several micro-batches, and the
/// update in it: until it was seen so, as believed, off as it is among others; without a belief as
/// so many steps of a part of the samples. Of a device that was only seen alone it is the same.
///
/// A device that nothing is known of takes almost no time, so that it will be tried. Curves end
/// where memory does; without a belief at three times what the device ever had, so that none is
/// trusted far from where it was measured. What was learned is taken up when some device's time or
/// a tail differs by more than one percent, or samples are new: jitter changes nothing.
class LearnedOptions : public OptionSource {
 public:
  /// Requires groups in ascending size, and `most` of all devices.
  LearnedOptions(std::vector<DeviceLimits> devices, std::vector<LearnedGroup> groups);

  void observe(const policy::StepSeen& step) override;
  const std::vector<BatchOption>& options() const override { return options_; }
  std::int64_t version() const override { return version_; }
  Json state() const override;
  Result<void> restore(const Json& state, const std::string& where) override;

 private:
  struct Tail {
    std::vector<double> last;  // seconds, of the last steps
    double used = 0;
  };
  /// Of all groups: what overlaps with work.
  struct Overlap {
    std::vector<double> hidden, share;  // of the last steps
  };
  bool learn_curves(const policy::StepSeen& step);
  bool learn_tail(const policy::StepSeen& step);
  bool is_alone(const std::vector<policy::Share>& shares) const;
  bool learn_alone(const policy::StepSeen& step);
  DeviceCurve curve_of(std::size_t device) const;
  DeviceCurve curve_alone() const;
  ExchangeTimes exchange_of(std::size_t group) const;
  ExchangeTimes overlap() const;
  double believed_tail(std::size_t group) const;
  double tail_of(std::size_t group) const;
  void apply();

  std::vector<DeviceLimits> devices_;
  std::vector<LearnedGroup> groups_;
  std::vector<LearnedCurves> curves_;   // by device
  std::optional<LearnedCurves> alone_;  // of the first one, where there is a group of it
  std::vector<Tail> tails_;             // by group
  Overlap overlap_;
  std::vector<BatchOption> options_;
  std::int64_t version_ = 0;
};

}  // namespace motley::adapt
