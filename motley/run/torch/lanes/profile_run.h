#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/program/program.h"
#include "motley/run/measure.h"

namespace motley::run {

struct ProfileRunOptions {
  std::string kind = "cpu";
  int local_index = 0;
  std::int64_t warm_up = 2, min_steps = 5, max_steps = 200;
  Seconds budget{2.0};  ///< of measuring, after the warm-up
};

/// What neighbours and pauses cost a device under emulation of `speed`.
struct WholeStepTimes {
  /// "step N" of N samples, without collectives.
  OpTime step;
  /// "pause N": added time of such a step per pause in it, excluding the pause itself.
  OpTime pause;
};
/// Measures the last three quarters of the steps, with all neighbours; every other step pauses.
Result<WholeStepTimes> time_whole_steps(const program::DeviceProgram& program, double speed,
                                        const ProfileRunOptions& options);

/// Measures a device's compute instructions in place. Runs whole steps without collectives on
/// synthetic samples (small floats, integers 0 or 1) and cuts each into contiguous intervals, one
/// per instruction, so that dispatch, allocation and cache effects are included and the intervals
/// add up to the step. Like time_operators, with scratch.
Result<std::vector<OpTime>> profile_program(const program::DeviceProgram& program,
                                            const ProfileRunOptions& options);

}  // namespace motley::run
