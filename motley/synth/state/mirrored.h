#pragma once

#include "motley/base/result.h"
#include "motley/plan/plan.h"
#include "motley/program/program.h"
#include "motley/synth/state/mirrors.h"

namespace motley::synth {

/// Returns the same program with mirrors on the keepers that mirrors.h chose, bit for bit equal to
/// the holders' state after each step. A mirror is a buffer "mirror/HOLDER'S RANK/NAME" of the
/// holder's shape and part. It mirrors the whole buffer that has the rows, on the holder with the
/// smallest such buffer.
///
/// A keeper repeats the optimizer instructions that write the holder's buffers, for the mirrored
/// tensors only if an instruction has several (not motley::apply). What these instructions read is
///  mirrored here             the mirror, or what repeated instructions made of it;
///  other persistent state    mirrored, too (the loss scale);
///  made of state that is the same here (rows of a parameter that all have whole)
///                            made here, too, before this device writes that state;
///  else (gradients, factors) packed and sent before the holder's instruction, one message per
///                            instruction and dtype, after all other messages to that keeper.
/// Only the end of the step waits for mirrors. Apply with_commit afterwards, so that mirrors are
/// written after the commit.
///
/// `updates` portable: motley::update of mirrored tensors is portable on both, as the devices may
/// differ. O(instructions + buffers) for each holder and keeper. Usage error `synth.mirrors`: an
/// instruction writes mirrored state through a view.
Result<program::Program> with_mirrors(program::Program program, const Mirrors& mirrors,
                                      plan::Updates updates);

/// What mirrors of a program cost, by rank: bytes kept, and bytes sent and received per step.
struct MirrorCost {
  std::vector<Bytes> kept, sent, received;
};
MirrorCost find_mirror_cost(const program::Program& program);

}  // namespace motley::synth
