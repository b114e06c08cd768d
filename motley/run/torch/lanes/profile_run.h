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
  /// "step N" of N samples, collectives left out.
  OpTime step;
  /// "pause N": how much longer such a step takes for each pause in it, beside the pause itself.
  OpTime pause;
};
/// Of all but the first quarter of the steps, when neighbours may still be starting. Every other
/// step pauses now and then.
Result<WholeStepTimes> time_whole_steps(const program::DeviceProgram& program, double speed,
                                        const ProfileRunOptions& options);

/// Measures a device's compute instructions where they stand: whole steps are run, collectives left
/// out, on made-up samples (floats small, integers 0 or 1), and the step is cut into contiguous
/// intervals, one an instruction, so that dispatch, allocation and cache effects are in and the
/// parts add up to the step. As time_operators, with scratch.
Result<std::vector<OpTime>> profile_program(const program::DeviceProgram& program,
                                            const ProfileRunOptions& options);

}  // namespace motley::run
