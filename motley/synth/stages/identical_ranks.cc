#include "motley/synth/stages/identical_ranks.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace motley::synth {
namespace {

std::size_t root_of(std::vector<std::size_t>& parents, std::size_t rank) {
  while (parents[rank] != rank) rank = parents[rank] = parents[parents[rank]];
  return rank;
}

}  // namespace

std::vector<IdenticalRanks::StandIn> IdenticalRanks::find() const {
  std::vector<std::size_t> parents(notes_.size());  // the first rank of its set is the root
  std::iota(parents.begin(), parents.end(), std::size_t{0});
  for (const Join& each : joins_)
    for (const std::size_t rank : each.ranks) {
      const std::size_t a = root_of(parents, each.ranks.front()), b = root_of(parents, rank);
      parents[std::max(a, b)] = std::min(a, b);
    }
  std::map<std::size_t, std::vector<std::size_t>> sets;  // by root
  std::vector<std::size_t> place(notes_.size());         // in its set
  std::map<std::size_t, std::vector<std::int64_t>> said;
  for (std::size_t rank = 0; rank < notes_.size(); ++rank) {
    const std::size_t root = root_of(parents, rank);
    place[rank] = sets[root].size();
    sets[root].push_back(rank);
    std::vector<std::int64_t>& text = said[root];
    text.push_back(static_cast<std::int64_t>(notes_[rank].size()));
    text.insert(text.end(), notes_[rank].begin(), notes_[rank].end());
  }
  for (const auto& [ranks, what] : joins_) {
    std::vector<std::int64_t>& text = said[root_of(parents, ranks.front())];
    text.push_back(static_cast<std::int64_t>(ranks.size()));
    for (const std::size_t rank : ranks) text.push_back(static_cast<std::int64_t>(place[rank]));
    text.insert(text.end(), what.begin(), what.end());
  }
  std::map<std::vector<std::int64_t>, std::size_t> firsts;  // root
  std::map<std::size_t, StandIn> found;                     // by rank
  for (const auto& [root, ranks] : sets) {
    const std::size_t like = firsts.try_emplace(said.at(root), root).first->second;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      StandIn& stand_in = found[sets.at(like)[i]];
      stand_in.ranks.push_back(ranks[i]);
      stand_in.set = like;
    }
  }
  std::vector<StandIn> ordered;
  for (auto& [rank, stand_in] : found) ordered.push_back(std::move(stand_in));
  return ordered;
}

}  // namespace motley::synth
