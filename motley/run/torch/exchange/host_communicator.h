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

/// A group of ranks that communicate; `members[i]` is the rank with position i in the group.
struct GroupOptions {
  std::vector<int> members;
  EmulatedLink link;
};

/// A rank that sends to another.
struct PairOptions {
  int source = 0, target = 0;
  EmulatedLink link = {};
};

struct CommunicatorOptions {
  std::vector<GroupOptions> groups;  ///< by GroupId
  Seconds timeout{30};               ///< of every operation
  bool shared_memory = true;         ///< false: Gloo even within a machine
  /// Whom this rank sends to and receives from, ascending by source, then target; those of other
  /// ranks may be there, too.
  std::vector<PairOptions> pairs = {};
};

/// Collectives through host memory: within a group whose ranks are on one machine by memory that
/// they share, else by PyTorch's Gloo process groups; what all ranks do at the start by Gloo. Ranks
/// are on one machine if they can open one file in /dev/shm. CUDA tensors are copied to the host
/// and back. Collective: all ranks of the rendezvous make theirs, with equal options but for the
/// pairs, at the same time. `rendezvous` outlives it.
///
/// On the first error all groups and pairs are dropped, which wakes the peers that wait for us and
/// the sends and receives of other threads here, with the code run.closed; a collective that is
/// blocked in Gloo at that moment ends with its timeout or with the process.
Result<std::unique_ptr<Communicator>> make_host_communicator(Rendezvous& rendezvous,
                                                             const CommunicatorOptions& options);

}  // namespace motley::run
