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

/// Groups of devices to train on, with the known times of their steps: the only source of times for
/// batch policies. Deterministic, as policy::Policy.
class OptionSource {
 public:
  virtual ~OptionSource() = default;
  virtual void observe(const policy::StepSeen& step) = 0;
  /// Removes a device from all options, or returns it. All are present at first.
  virtual void set_present(const std::string& device, bool is_there) = 0;
  /// Returns verified options: the same groups in the same order while the devices stay.
  virtual const std::vector<BatchOption>& options() const = 0;
  /// Returns a number that changes when `options` returns other times or groups.
  virtual std::int64_t version() const = 0;
  virtual Json state() const = 0;
  virtual Result<void> restore(const Json& state, const std::string& where) = 0;
};

/// Finds the smallest option with all devices of these shares, the first of equals; -1: none. A
/// split may leave devices of its group without samples.
int find_option(const std::vector<BatchOption>& options, const std::vector<policy::Share>& shares);

std::vector<policy::Share> shares_of(const policy::StepSeen& step);
/// Returns the same for a split over an option's devices.
std::vector<policy::Share> shares_of(const BatchOption& option,
                                     const std::vector<std::int64_t>& samples);
std::vector<std::int64_t> samples_of(const BatchOption& option,
                                     const std::vector<policy::Share>& shares);

}  // namespace motley::adapt
