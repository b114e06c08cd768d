#pragma once

#include "motley/base/result.h"
#include "motley/run/torch/worker_session.h"

namespace motley::run {

/// Times all_reduce among the first 2, 3, ... n ranks of a job, from 4 bytes to 64 MiB, with even
/// parts all_gather, reduce_scatter and all_to_all at four sizes from 4 KiB to 16 MiB, and each way
/// to carry one out that is not native (of levels only where hosts have them) at two, through
/// the same communicator that training uses (emulated links included), and compute beside the
/// exchanges of all ranks (overlap.h). Sizes are those by which the exchanges are priced
/// (program::priced_bytes). Rank 0 reports the event `collectives`. Collective.
Result<void> measure_collectives(WorkerSession& session, const Reporter& reporter);

}  // namespace motley::run
