#pragma once

#include "motley/base/result.h"
#include "motley/program/program.h"

namespace motley::synth {

/// Returns the same program with a step that completes on all ranks or on none, whichever rank is
/// lost (program/commit.h). When all exchanges of a rank are done it casts a ballot; persistent
/// state is written after the ballots' sum. A rank that has the sum may finish the step alone. A
/// rank that cast its ballot but lacks the sum may finish or undo the step, depending on the
/// others. If a rank cast no ballot, no rank has the sum, and all undo the step.
///
/// On each rank, in order:
///  the exchanges and what they need; the ballot, which waits for all of them; its sum
///  the rest of the compute lane: from the first instruction that writes persistent state, without
///  what an exchange needs
///
/// What must be written earlier, because an exchange depends on it, is copied by the executor
/// before the step. The price: updates no longer overlap with the last exchanges, buckets live
/// until then, and there is one more sum of a number. Programs of one rank stay as they are.
Result<program::Program> with_commit(program::Program program);

}  // namespace motley::synth
