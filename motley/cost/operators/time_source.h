#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/cost/measured/operator_work.h"
#include "motley/cost/measured/profile_store.h"
#include "motley/cost/operators/scratch_model.h"
#include "motley/graph/graph.h"
#include "motley/program/program.h"

namespace motley::cost {

/// Prices the operators of a program on one kind of device. Implementations: measured times (here),
/// a model fitted to them (operator_model.h), the figures of a device kind.
class TimeSource {
 public:
  struct Answer {
    Seconds seconds;
    Bytes scratch;
    double spread = 0;  ///< median absolute deviation / median; 0 if not measured
  };
  virtual ~TimeSource() = default;
  /// Returns an answer per instruction, in order; empty if unknown. Transfers take 0 here.
  virtual std::vector<std::optional<Answer>> times(const program::DeviceProgram& program) const = 0;
};

/// The store's times of a device, by program::cost_key.
class MeasuredTimes : public TimeSource {
 public:
  explicit MeasuredTimes(const std::vector<OpEntry>& entries);
  static Result<MeasuredTimes> load(const ProfileStore& store, const DeviceKey& device);
  std::vector<std::optional<Answer>> times(const program::DeviceProgram& program) const override;

 private:
  std::unordered_map<std::string, Answer> by_key_;
};

/// Returns the dtype of an instruction's first result, else of its first argument.
DType instruction_dtype(const program::DeviceProgram& program,
                        const program::Instruction& instruction);

/// Prices operators by their work, in any program.
class WorkTimes : public TimeSource {
 public:
  /// `graph`: the one from which the programs are lowered.
  explicit WorkTimes(std::shared_ptr<const graph::Graph> graph) : graph_(std::move(graph)) {}
  /// Prices an operator (name with overload) that computes in `dtype` (instruction_dtype).
  virtual Answer answer(std::string_view name, DType dtype, const OperatorWork& work) const = 0;
  std::vector<std::optional<Answer>> times(const program::DeviceProgram& program) const override;
  /// Prices instructions whose work (instruction_work) is known.
  std::vector<std::optional<Answer>> times(const program::DeviceProgram& program,
                                           const std::vector<OperatorWork>& works) const;

 protected:
  /// Returns the memory besides results, if it is known independently of `answer`.
  virtual Bytes scratch(std::string_view /*name*/, DTypes /*reads*/,
                        const OperatorWork& /*work*/) const {
    return Bytes(0);
  }

 private:
  std::shared_ptr<const graph::Graph> graph_;
};

class FirstKnown : public TimeSource {
 public:
  FirstKnown(std::shared_ptr<const TimeSource> first, std::shared_ptr<const TimeSource> second)
      : first_(std::move(first)), second_(std::move(second)) {}
  std::vector<std::optional<Answer>> times(const program::DeviceProgram& program) const override;

 private:
  std::shared_ptr<const TimeSource> first_, second_;
};

/// Raises a source's times to at least `least`, so that a bound by `least` holds for them.
class AtLeast : public TimeSource {
 public:
  AtLeast(std::shared_ptr<const TimeSource> source, std::shared_ptr<const WorkTimes> least)
      : source_(std::move(source)), least_(std::move(least)) {}
  std::vector<std::optional<Answer>> times(const program::DeviceProgram& program) const override;

 private:
  std::shared_ptr<const TimeSource> source_;
  std::shared_ptr<const WorkTimes> least_;
};

}  // namespace motley::cost
