#pragma once

#include <cstdint>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/cost/operators/pace.h"
#include "motley/cost/operators/time_source.h"
#include "motley/program/program.h"

namespace motley::cost {

/// Time of each instruction of one kind of device program over the local batch. Measured at
/// reference batches; in between linear and nondecreasing (isotonic, by pooling adjacent
/// violators); constant below; beyond the largest with the last slope, at most proportional (from
/// one batch: proportional). Instructions of the transfer lane take 0. Scratch may decrease.
///
/// Example: measured 2 ms at 4 and 3 ms at 8: 2 ms at 1, 2.5 ms at 6, 4 ms at 12.
class InstructionTimes {
 public:
  /// `references`: the same lowering at one or more distinct batches (equal instruction sequences,
  /// checked). A missing time is a usage error with its key, device and `motley profile` command.
  static Result<InstructionTimes> build(const std::vector<program::DeviceProgram>& references,
                                        const TimeSource& source, const DeviceKey& device);
  /// Returns seconds of instruction i at full speed for a local batch. O(log batches).
  Seconds at(std::size_t instruction, double samples) const;
  /// Returns the memory of each instruction besides its results, rounded up.
  std::vector<Bytes> scratch_bytes(std::int64_t samples) const;
  Bytes scratch_at(std::size_t instruction, double samples) const;
  std::size_t size() const { return seconds_.size(); }
  /// Returns whether the program has the same operators in the same order as the references.
  bool fits(const program::DeviceProgram& program) const;
  Seconds total(double samples) const;
  /// Returns the spread of instruction times at the largest batch, mean weighted by time.
  double spread() const { return spread_; }
  /// Returns the times at this pace, by the whole steps at the batches; constant pace beyond.
  InstructionTimes slowed(const Pace& pace) const;
  const std::vector<double>& batches() const { return batches_; }

 private:
  double within(const std::vector<double>& values, double samples) const;
  double slope_beyond(const std::vector<double>& values) const;
  double beyond(double samples) const;  // samples beyond the largest batch, >= 0

  std::uint64_t operators_ = 0;               // hash of their names in order
  std::vector<double> batches_;               // increasing
  std::vector<std::vector<double>> seconds_;  // [instruction][batch]
  std::vector<double> slopes_;  // [instruction]; seconds per sample beyond the largest batch
  std::vector<std::vector<double>> scratch_;  // [instruction][batch]; bytes
  double spread_ = 0;
};

}  // namespace motley::cost
