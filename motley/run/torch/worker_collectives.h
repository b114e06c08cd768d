#pragma once

#include "motley/base/result.h"
#include "motley/run/torch/worker_session.h"

namespace motley::run {

/// Times collectives through the communicator that training uses, emulated links included:
/// all_reduce among the first 2, 3, ... n ranks, from 4 bytes to 64 MiB; all_gather, reduce_scatter
/// and all_to_all with even parts at four sizes from 4 KiB to 16 MiB; each other method
/// (hierarchical only if hosts have levels) at two sizes. Also times compute beside exchanges of
/// all ranks (overlap.h). Sizes are the ones by which exchanges are priced (program::priced_bytes).
/// Rank 0 reports the event `collectives`. Collective.
Result<void> measure_collectives(WorkerSession& session, const Reporter& reporter);

}  // namespace motley::run
