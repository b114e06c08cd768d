#pragma once

#include <memory>

#include "motley/run/torch/exchange/host_communicator.h"

namespace motley::run {

/// Makes collectives with PyTorch's NCCL process groups, for jobs whose devices are all CUDA
/// devices with at most one rank each. Like make_host_communicator, but without emulated links.
Result<std::unique_ptr<Communicator>> make_nccl_process_groups(Rendezvous& rendezvous,
                                                               const CommunicatorOptions& options,
                                                               int device);

}  // namespace motley::run
