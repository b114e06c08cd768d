#pragma once

#include <memory>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/run/torch/communicator.h"
#include "motley/run/torch/emulated_link.h"
#include "motley/run/torch/rendezvous.h"

namespace motley::run {

/// A group of ranks that communicate; `members[i]` is the rank with position i in the group.
struct GroupOptions {
  std::vector<int> members;
  EmulatedLink link;
};

struct CommunicatorOptions {
  std::vector<GroupOptions> groups;  ///< by GroupId
  Seconds timeout{30};               ///< of every operation
  std::string clock_file;            ///< shared by the ranks; for emulated links only
};

/// Collectives by PyTorch's Gloo process groups: one for all ranks and one for each group that is
/// not all ranks and holds this one. CUDA tensors go through host memory. Collective: all ranks of
/// the rendezvous make theirs, with equal options, at the same time. `rendezvous` outlives it.
///
/// On the first error the groups are dropped, which wakes the peers that wait for us; a call that
/// is blocked at that moment ends with its timeout or with the process.
Result<std::unique_ptr<Communicator>> make_gloo_communicator(Rendezvous& rendezvous,
                                                             const CommunicatorOptions& options);

}  // namespace motley::run
