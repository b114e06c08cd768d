#pragma once

#include "motley/program/program.h"
#include "motley/synth/step/place.h"
#include "motley/synth/step/sharded_step.h"

namespace motley::synth {

/// One rank's program of a sharded step: sources, operators in the order of the schedule, exchanges
/// as soon as what they carry is there, updates of parameters and the report. `start` is the
/// program without buffers and instructions. O(graph).
program::DeviceProgram lower_rank(const ShardedStep& step, Place& place,
                                  program::DeviceProgram start);

}  // namespace motley::synth
