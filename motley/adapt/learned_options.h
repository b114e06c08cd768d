#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "motley/adapt/device_limits.h"
#include "motley/adapt/learned_curves.h"
#include "motley/adapt/option_source.h"
#include "motley/cost/step/step_curves.h"

namespace motley::adapt {

/// A device that computes a step alone, in micro-batches.
struct AloneLimits {
  std::int64_t micro_batches = 2;        ///< per micro-batch in a group
  std::int64_t most = 0;                 ///< samples per step that fit in its memory; 0: it cannot
  std::optional<CurvePrior> prior = {};  ///< of whole steps
};

struct LearnedDevice {
  DeviceLimits limits;
  AloneLimits alone = {};
  std::string machine = "";  ///< its machine, which costs `per_hour`
  double per_hour = 0;
};

struct LearnedGroup {
  std::size_t devices = 0;
  /// Prior of its exchanges, if any.
  std::optional<cost::GroupExchanges> exchanges = {};
};

/// Groups whose curves are learned from steps (learned_curves.h), with or without a prior. A group
/// is the first present devices of a list, ordered by speed: a few while the batch is small, more
/// as it grows; the given sizes, and all. An unlisted device that is seen comes last, without a
/// prior.
///
///   tail    median over the last steps of a size of the time beyond the devices' own work; without
///           steps, the prior, scaled as at the next size with steps; else the same as that size
///   hidden  exchanges before the last awaited one, and when they begin, from the last steps
///
/// A device alone is learned separately: its step has several micro-batches and includes the
/// update. Until seen alone, its prior applies, scaled as in groups; without a prior, several steps
/// of a part of the samples. Conversely for a device seen only alone. All samples are multiples of
/// a unit (BatchOption).
///
/// An unknown device takes almost no time, so that it is tried. Curves end at the memory limit;
/// without a prior, at three times the device's most samples, so that none is trusted far from its
/// measurements. What was learned takes effect when a device's time or a tail differs by more than
/// one percent, or samples are new: jitter changes nothing.
class LearnedOptions : public OptionSource {
 public:
  /// Requires groups in ascending size and `most` of all devices.
  LearnedOptions(std::vector<LearnedDevice> devices, std::vector<LearnedGroup> groups,
                 std::int64_t unit = 1);

  void observe(const policy::StepSeen& step) override;
  void set_present(const std::string& device, bool is_there) override;
  const std::vector<BatchOption>& options() const override { return options_; }
  std::int64_t version() const override { return version_; }
  Json state() const override;
  Result<void> restore(const Json& state, const std::string& where) override;

 private:
  struct Tail {
    std::vector<double> last;  // seconds, of the last steps
    double used = 0;
  };
  /// The overlap with work, for all groups.
  struct Overlap {
    std::vector<double> hidden, share;  // of the last steps
  };
  struct Known {
    LearnedDevice device;
    LearnedCurves curves;
    std::optional<LearnedCurves> alone;  // where it may train alone
    bool is_there = true;
  };
  void add(LearnedDevice device);
  Known* find(const std::string& device);
  bool learn_curves(const policy::StepSeen& step);
  bool learn_tail(const policy::StepSeen& step);
  bool learn_alone(const policy::DeviceStep& seen, std::int64_t step);
  const DeviceCurve* used_curve(const std::string& device, bool is_alone) const;
  const cost::GroupExchanges* believed(std::size_t devices) const;
  ExchangeTimes exchange_of(std::size_t devices) const;
  ExchangeTimes overlap() const;
  double believed_tail(std::size_t devices) const;
  double tail_of(std::size_t devices) const;
  static DeviceCurve curve_of(const Known& known);
  static DeviceCurve curve_alone(const Known& known);
  static Result<void> restore_device(const Json& json, const std::string& name,
                                     const std::string& where, std::vector<Known>& known);
  BatchOption make_option(const std::vector<const Known*>& devices) const;
  void apply();

  std::vector<Known> devices_;
  std::vector<LearnedGroup> groups_;
  std::int64_t unit_;
  std::map<std::size_t, Tail> tails_;  // by number of devices
  Overlap overlap_;
  std::vector<BatchOption> options_;
  std::int64_t version_ = 0;
};

}  // namespace motley::adapt
