#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "motley/run/torch/exchange/communicator.h"

namespace motley::run {

/// A group whose members are on several hosts, one of which has several of them, as one rank sees
/// it. Members are positions in the group.
///
/// Where all hosts have as many members, those at the i-th place of each form a group across:
///   all-gather       across, then inside
///   reduce-scatter   inside, then across
///   all-reduce       reduce-scatter inside, all-reduce across, all-gather inside
///   all-to-all       inside, to the place of each part's receiver, then across; who gives how much
///                    to whom is gathered before
/// Else the first member of each host stands for it:
///   all-gather       inside, then across, then everything to the others
///   reduce-scatter   sums to the first, across, then its part to each
///   all-reduce       inside, across, then from the first to the others
///   all-to-all       natively
struct Levels {
  std::vector<std::vector<std::size_t>> hosts;  ///< members by host
  bool is_even = false;
  std::size_t host = 0, place = 0;  ///< of this rank
  GroupId inside, across;           ///< across: none where another stands for this rank
};

/// The levels of a group of ranks, without groups; no hosts where there are none.
Levels find_levels(const std::vector<int>& members, const std::vector<std::string>& host_of_rank,
                   int rank);

/// The groups that levels need, as members' ranks: inside each host, then across; the same list on
/// all ranks. The groups of `levels` get ids from `next` on.
std::vector<std::vector<int>> make_level_groups(const std::vector<int>& members, Levels& levels,
                                                std::int64_t next);

/// Carries hierarchical exchanges out over the groups of `levels`, by the group whose levels they
/// are; passes all others on.
std::unique_ptr<Communicator> with_levels(std::unique_ptr<Communicator> inner,
                                          std::map<GroupId, Levels> levels);

}  // namespace motley::run
