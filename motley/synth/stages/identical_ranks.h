#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace motley::synth {

/// Which ranks do as others do. Ranks that exchange something among themselves belong together;
/// sets of them that are equal in all that was noted are identical, the n-th rank of one to the
/// n-th of the other, and the first set stands for the others. What all members of a region
/// exchange is not noted: it is the same for all of them.
///
/// Example: two regions of four devices, each of which sends to the one in its place: four sets of
/// two; if the first device of the second region alone keeps the loss, the first set stands for
/// itself and the second one for the last three.
class IdenticalRanks {
 public:
  explicit IdenticalRanks(std::size_t ranks) : notes_(ranks) {}

  /// Something that a rank has or does by itself.
  void note(std::size_t rank, std::int64_t what) { notes_[rank].push_back(what); }
  /// These ranks exchange something among themselves; `what` tells it from other such things, the
  /// same numbers for what is the same.
  void join(std::vector<std::size_t> ranks, std::vector<std::int64_t> what) {
    joins_.push_back({std::move(ranks), std::move(what)});
  }

  /// A rank that stands for others, or itself alone.
  struct StandIn {
    std::vector<std::size_t> ranks;  ///< for which it stands, itself first
    std::size_t set = 0;             ///< number of its set
    bool operator==(const StandIn&) const = default;
  };
  /// Ascending. Those of one set stand for equally many, and the n-th of these are one set, too.
  /// O(notes log ranks).
  std::vector<StandIn> find() const;

 private:
  struct Join {
    std::vector<std::size_t> ranks;
    std::vector<std::int64_t> what;
  };

  std::vector<std::vector<std::int64_t>> notes_;  // by rank
  std::vector<Join> joins_;
};

}  // namespace motley::synth
