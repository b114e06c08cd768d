#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/program/program.h"

namespace motley::run {

/// Time of all instructions with one cost key.
struct OperatorTime {
  std::string key;  ///< program::cost_key
  Seconds median;
  double spread = 0;         ///< median absolute deviation / median
  std::int64_t samples = 0;  ///< measured executions
  Bytes scratch;             ///< memory needed beside the results
};

struct ProfileOptions {
  std::string kind = "cpu";
  int local_index = 0;
  std::int64_t warm_up = 2, min_steps = 5, max_steps = 200;
  Seconds budget{2.0};  ///< of measuring, after the warm-up
};

/// Seconds of whole steps under emulation of `speed`, collectives left out: one entry "step N" for
/// N samples, of all but the first quarter of them, when neighbours may still be starting. Says
/// what neighbours and pauses between the bursts of work cost a device.
Result<OperatorTime> time_whole_steps(const program::DeviceProgram& program, double speed,
                                      const ProfileOptions& options);

/// Measures a device's compute instructions where they stand: whole steps are run, collectives left
/// out, on made-up samples (floats small, integers 0 or 1), and the step is cut into contiguous
/// intervals, one an instruction, so that dispatch, allocation and cache effects are in and the
/// parts add up to the step. Per instruction the median over steps; instructions of equal key give
/// the mean of theirs, so that the sum over the program stays. Sorted by key.
Result<std::vector<OperatorTime>> profile_program(const program::DeviceProgram& program,
                                                  const ProfileOptions& options);

}  // namespace motley::run
