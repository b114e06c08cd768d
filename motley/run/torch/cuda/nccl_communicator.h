#pragma once

#include <memory>

#include "motley/run/torch/exchange/host_communicator.h"

namespace motley::run {

/// Collectives by PyTorch's NCCL process groups, for jobs whose devices are all CUDA devices; at
/// most one rank a device. As make_host_communicator, except that links are not emulated.
Result<std::unique_ptr<Communicator>> make_nccl_process_groups(Rendezvous& rendezvous,
                                                               const CommunicatorOptions& options,
                                                               int device);

}  // namespace motley::run
