#pragma once

#include <memory>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/run/torch/exchange/communicator.h"
#include "motley/run/torch/exchange/emulated_link.h"
#include "motley/run/torch/exchange/rendezvous.h"

namespace motley::run {

/// A group of ranks; `members[i]` is the rank at position i in the group.
struct GroupOptions {
  std::vector<int> members;
  EmulatedLink link;
};

/// A sender and a receiver of messages.
struct PairOptions {
  int source = 0, target = 0;
  EmulatedLink link = {};
};

struct CommunicatorOptions {
  std::vector<GroupOptions> groups;  ///< by GroupId
  Seconds timeout{30};               ///< of every operation
  bool shared_memory = true;         ///< false: Gloo even within a machine
  /// This rank's sends and receives, sorted by source, then target. May include pairs of others.
  std::vector<PairOptions> pairs = {};
};

/// Makes collectives through host memory: by shared memory within a group on one machine, else by
/// PyTorch's Gloo process groups, which also do what all ranks do at the start. Ranks are on one
/// machine if they can open the same file in /dev/shm. CUDA tensors are copied to the host and
/// back. Collective: all ranks of the rendezvous call it at the same time with equal options,
/// except for pairs. `rendezvous` outlives it.
///
/// The first error drops all groups and pairs. That wakes waiting peers, and other threads' sends
/// and receives here with code run.closed; a collective blocked in Gloo ends at its timeout.
Result<std::unique_ptr<Communicator>> make_host_communicator(Rendezvous& rendezvous,
                                                             const CommunicatorOptions& options);

}  // namespace motley::run
