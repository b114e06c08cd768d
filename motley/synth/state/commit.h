#pragma once

#include "motley/base/result.h"
#include "motley/program/program.h"

namespace motley::synth {

/// The same program, whose step happens on all ranks or on none, whoever is lost in it
/// (program/commit.h): when all exchanges of a rank are done it casts a ballot, and what is kept
/// from step to step is written behind the ballots' sum. Who has the sum may end the step alone;
/// who has not, but was ready for it, may end it or undo it, as the others say; where some rank was
/// not ready nobody has the sum, and all undo it.
///
/// On each rank, in order:
///   what exchanges need, and they themselves; the ballot, which waits for all of them; its sum
///   the rest of the compute lane: from the first instruction that writes what is kept on, without
///   what some exchange needs
/// What has to be written earlier, as an exchange depends on it, the executor copies before the
/// step. Updates no longer begin beside the last exchanges, and buckets live until then: that is
/// the price, with one sum of a number. Programs of one rank need none and stay as they are.
Result<program::Program> with_commit(program::Program program);

}  // namespace motley::synth
