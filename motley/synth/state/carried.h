#pragma once

#include <cstdint>

#include "motley/plan/plan.h"
#include "motley/program/program.h"

namespace motley::synth {

/// Returns the same program with some of its last bucket exchanges carried into the next step, as
/// far as they can be; of a fraction's exchange, an all-reduce, that share of its elements. A
/// carried exchange begins with the next step. What depends on it
/// (updates of parameters, new rows of owners) runs in front of the first instruction of that step
/// that reads or writes the same state. Its operands, made in the step before, are
/// BufferKind::kCarried; all moved instructions are `is_carried`. Numbers are those without: the
/// same operators on the same operands, each update with the rate of its own step
/// (Executor::take_in).
///
/// A bucket's exchanges on all devices are carried together, in the order of their first readers.
/// What the step sums of its inputs alone (counts of labels) goes before them. In one region an
/// exchange of its forward pass goes before those that are not needed until then, too; where
/// regions wait for each other it does not, so that none waits in a circle.
/// None can be carried whose result is reported (loss, norm of all gradients), needs a further
/// exchange (lamb, muon, adafactor) or samples of its own step. O(instructions * strands).
program::Program with_carried(program::Program program, const plan::Carried& carried);

/// Returns how many can be.
std::int64_t count_carriable(program::Program program);

}  // namespace motley::synth
