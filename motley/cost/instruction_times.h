#pragma once

#include <cstdint>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/cost/operators/pace.h"
#include "motley/cost/operators/time_source.h"
#include "motley/program/program.h"

namespace motley::cost {

/// Time of each instruction of one kind of device program as a function of the local batch:
/// measured at reference batches, in between linear and nondecreasing (isotonic, by pooling
/// adjacent violators), below the smallest constant, beyond the largest with the last segment's
/// slope, but at most in proportion to the batch (from one batch alone: in proportion).
/// Instructions of the transfer lane take 0. Scratch memory likewise, but not made nondecreasing.
///
/// Example: measured 2 ms at 4 and 3 ms at 8: 2 ms at 1, 2.5 ms at 6, 4 ms at 12.
class InstructionTimes {
 public:
  /// `references`: the same lowering at each measured batch, one or more, in any order (equal
  /// instruction sequences and distinct batches, checked). What the source cannot say is a usage
  /// error that names its key, the device and the `motley profile` to run.
  static Result<InstructionTimes> build(const std::vector<program::DeviceProgram>& references,
                                        const TimeSource& source, const DeviceKey& device);
  /// Seconds of instruction i at full speed for a local batch. O(log batches).
  Seconds at(std::size_t instruction, double samples) const;
  /// Memory that each instruction needs beside its results, rounded up.
  std::vector<Bytes> scratch_bytes(std::int64_t samples) const;
  /// The same of one instruction.
  Bytes scratch_at(std::size_t instruction, double samples) const;
  std::size_t size() const { return seconds_.size(); }
  /// Is the program a lowering of the kind that the references are: the same operators in order?
  bool fits(const program::DeviceProgram& program) const;
  /// All instructions at a local batch.
  Seconds total(double samples) const;
  /// Spread of an instruction, mean over the largest batch's, weighted by time.
  double spread() const { return spread_; }
  /// The same on a device of that pace, at the batches' whole steps, as slow beyond the largest.
  InstructionTimes slowed(const Pace& pace) const;
  const std::vector<double>& batches() const { return batches_; }

 private:
  /// Of values by batch: constant outside the batches.
  double within(const std::vector<double>& values, double samples) const;
  /// A sample, after the largest batch.
  double slope_beyond(const std::vector<double>& values) const;
  double beyond(double samples) const;  // the largest batch, samples >= 0

  std::uint64_t operators_ = 0;               // hash of their names in order
  std::vector<double> batches_;               // increasing
  std::vector<std::vector<double>> seconds_;  // [instruction][batch]
  std::vector<double> slopes_;                // [instruction]; seconds a sample, beyond the largest
  std::vector<std::vector<double>> scratch_;  // [instruction][batch]; bytes
  double spread_ = 0;
};

}  // namespace motley::cost
