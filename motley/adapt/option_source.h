#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "motley/adapt/batch_option.h"
#include "motley/base/json_forward.h"
#include "motley/base/result.h"
#include "motley/policy/action.h"
#include "motley/policy/observation.h"

namespace motley::adapt {

/// Groups of devices to train on, with what their steps take as far as is known. Policies of the
/// batch ask for nothing else about time. Deterministic, as policy::Policy.
class OptionSource {
 public:
  virtual ~OptionSource() = default;
  virtual void observe(const policy::StepSeen& step) = 0;
  /// A device that is gone is in no option until it is there again. All are there at first.
  virtual void set_present(const std::string& device, bool is_there) = 0;
  /// While the same devices are there, the same groups in the same order. Verified.
  virtual const std::vector<BatchOption>& options() const = 0;
  /// Another number where `options` gives other times or groups.
  virtual std::int64_t version() const = 0;
  virtual Json state() const = 0;
  virtual Result<void> restore(const Json& state, const std::string& where) = 0;
};

/// The smallest option that holds all devices of these shares, the first of equals; -1: none. A
/// split may leave devices of its group without samples.
int find_option(const std::vector<BatchOption>& options, const std::vector<policy::Share>& shares);

/// Devices with samples in a step.
std::vector<policy::Share> shares_of(const policy::StepSeen& step);
/// The same of a split over an option's devices.
std::vector<policy::Share> shares_of(const BatchOption& option,
                                     const std::vector<std::int64_t>& samples);
/// Samples a device of the option.
std::vector<std::int64_t> samples_of(const BatchOption& option,
                                     const std::vector<policy::Share>& shares);

}  // namespace motley::adapt
