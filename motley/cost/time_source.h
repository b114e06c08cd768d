#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/cost/profile_store.h"
#include "motley/program/program.h"

namespace motley::cost {

/// Says what the operators of a program cost on one kind of device. Implementations: measured
/// times (here), a model fitted to them (operator_model.h), the figures of a device kind.
class TimeSource {
 public:
  struct Answer {
    Seconds seconds;
    Bytes scratch;
    double spread = 0;  ///< median absolute deviation / median; 0 where nothing was measured
  };
  virtual ~TimeSource() = default;
  /// For every instruction of the compute lane, in order; empty where it cannot say. Transfers
  /// take 0 here.
  virtual std::vector<std::optional<Answer>> times(const program::DeviceProgram& program) const = 0;
};

/// What the store has of a device, by program::cost_key.
class MeasuredTimes : public TimeSource {
 public:
  explicit MeasuredTimes(const std::vector<OpEntry>& entries);
  static Result<MeasuredTimes> load(const ProfileStore& store, const DeviceKey& device);
  std::vector<std::optional<Answer>> times(const program::DeviceProgram& program) const override;

 private:
  std::unordered_map<std::string, Answer> by_key_;
};

/// The first that can say; both must outlive it.
class FirstKnown : public TimeSource {
 public:
  FirstKnown(const TimeSource& first, const TimeSource& second)
      : first_(&first), second_(&second) {}
  std::vector<std::optional<Answer>> times(const program::DeviceProgram& program) const override;

 private:
  const TimeSource *first_, *second_;
};

}  // namespace motley::cost
