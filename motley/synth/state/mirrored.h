#pragma once

#include "motley/base/result.h"
#include "motley/plan/plan.h"
#include "motley/program/program.h"
#include "motley/synth/state/mirrors.h"

namespace motley::synth {

/// The same program, whose keepers also hold what mirrors.h chose for them, with the same bits as
/// their holders after each step. A mirror is a buffer of its own, "mirror/HOLDER'S RANK/NAME", of
/// the holder's shape and part; of rows that a mirror names the buffer that has them is mirrored
/// whole, of the holder that has least beside them.
///
/// A keeper does again what writes the holder's buffers: the optimizer's instructions, of these
/// buffers alone where an instruction has several (not motley::apply). What they read
///   mirrored here             is the mirror, and what instructions done again made of it;
///   else kept                 is mirrored, too (the loss's scale);
///   made of what is kept and is the same here (rows of a parameter that all have whole)
///                             is made here, too, before this device writes that;
///   else (gradients, factors) is packed and sent before the holder's instruction, a message an
///                             instruction and dtype, behind all other messages to that keeper.
/// Nothing waits for mirrors but the end of the step; with_commit comes behind, so that they are
/// written where the step is decided.
///
/// `updates` portable: motley::update of what is mirrored is so on both, as the devices may differ.
/// O(instructions + buffers) for each holder and keeper. Faults: `synth.mirrors` (usage): an
/// instruction writes what is mirrored through a view.
Result<program::Program> with_mirrors(program::Program program, const Mirrors& mirrors,
                                      plan::Updates updates);

/// What mirrors of a program cost, by rank: bytes that are kept, and that are sent and received for
/// them in a step.
struct MirrorCost {
  std::vector<Bytes> kept, sent, received;
};
MirrorCost find_mirror_cost(const program::Program& program);

}  // namespace motley::synth
