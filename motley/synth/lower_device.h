#pragma once

#include "motley/graph/graph.h"
#include "motley/program/program.h"
#include "motley/synth/forms.h"
#include "motley/synth/lower.h"
#include "motley/synth/schedule.h"

namespace motley::synth {

/// What lowering finds out before it knows a device's share: the same for all of a group.
struct Analysis {
  FormTable forms;
  Schedule schedule;
};

/// Forms and schedule for a group of `ranks` devices (1: alone).
Result<Analysis> analyse(const graph::Graph& graph, int ranks, const LowerOptions& options);

/// The program of one device; all sizes are its own.
program::DeviceProgram emit_device(const graph::Graph& graph, const Analysis& analysis,
                                   const Placement& placement, const LowerOptions& options);

}  // namespace motley::synth
