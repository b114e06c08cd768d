#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "motley/run/torch/exchange/communicator.h"

namespace motley::run {

/// A group that spans several hosts, at least one with several members, as one rank sees it.
/// Members are positions in the group.
///
/// If all hosts have equally many members, the i-th members of all hosts form a group across hosts:
///   all-gather       across, then inside
///   reduce-scatter   inside, then across
///   all-reduce       reduce-scatter inside, all-reduce across, all-gather inside
///   all-to-all       inside, to the place of each part's receiver, then across; the counts are
///                    gathered first
/// Otherwise the first member of each host represents it:
///   all-gather       inside, then across, then everything to the others
///   reduce-scatter   sums to the first, across, then its part to each
///   all-reduce       inside, across, then from the first to the others
///   all-to-all       natively
struct Levels {
  std::vector<std::vector<std::size_t>> hosts;  ///< members by host
  bool is_even = false;
  std::size_t host = 0, place = 0;  ///< of this rank
  GroupId inside, across;           ///< across: none if another member represents this rank
};

/// Returns the levels of a group of ranks, without group ids; no hosts: the group has no levels.
Levels find_levels(const std::vector<int>& members, const std::vector<std::string>& host_of_rank,
                   int rank);

/// Returns the groups that levels need, as ranks, equal on all; numbers them from `next` on.
std::vector<std::vector<int>> make_level_groups(const std::vector<int>& members, Levels& levels,
                                                std::int64_t next);

/// Wraps a communicator: runs hierarchical exchanges over groups' levels, passes on all others.
std::unique_ptr<Communicator> with_levels(std::unique_ptr<Communicator> inner,
                                          std::map<GroupId, Levels> levels);

}  // namespace motley::run
