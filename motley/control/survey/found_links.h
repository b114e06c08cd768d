#pragma once

#include <optional>
#include <string>
#include <vector>

#include "motley/cluster/cluster.h"
#include "motley/control/wires.h"

namespace motley::control {

/// What a pair of hosts has of each other: the slower way and the longer one.
struct Joint {
  BytesPerSecond bandwidth;
  Seconds latency;
};

/// The pairs that were measured. Hosts by number.
class Joints {
 public:
  explicit Joints(const Wires& wires);
  std::size_t hosts() const { return known_.size(); }
  /// Null: not measured.
  const Joint* find(std::size_t a, std::size_t b) const;
  /// Those with whom the host was measured, ascending.
  const std::vector<std::size_t>& partners(std::size_t host) const { return partners_[host]; }

 private:
  std::vector<std::vector<std::optional<Joint>>> known_;
  std::vector<std::vector<std::size_t>> partners_;
};

/// Rates within a tenth of the larger one.
bool are_identical(BytesPerSecond a, BytesPerSecond b);
/// The same, and latencies within a factor of two or 0.2 ms.
bool are_identical(const Joint& a, const Joint& b);

/// Hosts that are identical: with all others, as far as both were measured, they have the same.
/// Each group ascending, groups by their first. O(pairs measured x groups).
std::vector<std::vector<std::size_t>> find_groups(const Joints& joints);

/// What a cluster file is to say of what joins its nodes.
struct FoundLinks {
  std::vector<cluster::Link> links;
  std::vector<std::optional<BytesPerSecond>> cards;  ///< Node::bandwidth, by host
  /// What was measured and is not as written, by hosts' numbers: rate measured, rate written.
  struct Misfit {
    WireFlow flow;
    BytesPerSecond measured, written;
  };
  std::vector<Misfit> misfits;
  /// Hosts that send or receive more in several flows than a link gives one.
  std::vector<std::size_t> faster_together;
};

/// The fewest links that say what was measured, within a tenth:
///
/// - All pairs alike: one for all.
/// - A pair has what the slower of its hosts has with its best partner: one for all, and a
///   bandwidth for each slower host, if several flows of it get no more (by a quarter) together.
/// - Else a link for each group of hosts that are identical (find_groups), one for all at what most
///   pairs of unlike hosts have, and one for each two groups that have something else.
///
/// A host's bandwidth is also written where its flows to others on several links get together less
/// than nine tenths of what those give alone; a link's capacity where flows that cross it, a host
/// in at most one each way, get together less than seven tenths. Both are the most that was
/// measured of the flows' sum, of a host's two ways the less. Pairs that were not measured (of many
/// hosts) are as those of their groups' first. Rates are rounded to three digits.
///
/// Example: a, b and c, all pairs at 200 Mbps but those of c at 100, and c sends 100 to both at
/// once: a link for all at 200, and c's bandwidth is 100.
FoundLinks find_links(const Wires& wires);

/// What is to be measured together before find_links can say cards and capacities, in this order:
/// each host (where all are identical, or more than kMostPaired, the first of each group) to up to
/// three others, of unlike groups where it can be, and from them; then the flows that cross each
/// link: a ring of its nodes, one across the half of it, or as many disjoint pairs as there are,
/// both ways.
std::vector<std::vector<WireFlow>> find_loads(const Wires& wires);

/// Of so many hosts all pairs are measured.
inline constexpr std::size_t kMostPaired = 16;

}  // namespace motley::control
