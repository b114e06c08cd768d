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

/// A device that does a step by itself, in micro-batches.
struct AloneLimits {
  std::int64_t micro_batches = 2;        ///< for each that it does among others
  std::int64_t most = 0;                 ///< samples a step that its memory holds; 0: it cannot
  std::optional<CurvePrior> prior = {};  ///< of whole steps
};

struct LearnedDevice {
  DeviceLimits limits;
  AloneLimits alone = {};
  std::string machine = "";  ///< that it is of; an hour of which costs `per_hour`
  double per_hour = 0;
};

/// So many devices as a group.
struct LearnedGroup {
  std::size_t devices = 0;
  /// What is believed of its exchanges; none: nothing.
  std::optional<cost::GroupExchanges> exchanges = {};
};

/// Groups whose curves are learned from the steps that are taken (learned_curves.h), from a belief
/// or from nothing. Groups are the first devices that are there of a list, the fastest first: a
/// few while the batch is small, more as it grows; so many as is said, and all. A device that is
/// seen and not in the list comes behind the others, of which nothing is believed.
///
///   tail     what the last steps of so many devices took beyond their own work, in the middle; of
///   a
///            number that has taken none, what is believed of it, off by as much as the next one
///            that has; else as that one
///   hidden   exchanges but the last that is waited for, and from when on: of the last steps
///
/// What a device takes alone is learned apart, as its step then has several micro-batches, and the
/// update in it: until it was seen so, as believed, off as it is among others; without a belief as
/// so many steps of a part of the samples. Of a device that was only seen alone it is the same.
/// Samples of all are multiples of a unit (BatchOption).
///
/// A device that nothing is known of takes almost no time, so that it will be tried. Curves end
/// where memory does; without a belief at three times what the device ever had, so that none is
/// trusted far from where it was measured. What was learned is taken up when some device's time or
/// a tail differs by more than one percent, or samples are new: jitter changes nothing.
class LearnedOptions : public OptionSource {
 public:
  /// Requires groups in ascending size, and `most` of all devices.
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
  /// Of all groups: what overlaps with work.
  struct Overlap {
    std::vector<double> hidden, share;  // of the last steps
  };
  /// What is known of a device.
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
