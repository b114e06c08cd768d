#pragma once

#include <optional>
#include <string>
#include <vector>

#include "motley/cluster/cluster.h"
#include "motley/control/wires.h"

namespace motley::control {

/// The connection of two hosts: the smaller bandwidth and the larger latency of both directions.
struct Joint {
  BytesPerSecond bandwidth;
  Seconds latency;
};

class Joints {
 public:
  explicit Joints(const Wires& wires);
  std::size_t hosts() const { return known_.size(); }
  /// Null: not measured.
  const Joint* find(std::size_t a, std::size_t b) const;
  /// Hosts that were measured with this one, ascending.
  const std::vector<std::size_t>& partners(std::size_t host) const { return partners_[host]; }

 private:
  std::vector<std::vector<std::optional<Joint>>> known_;
  std::vector<std::vector<std::size_t>> partners_;
};

/// Are the rates within a tenth of the larger one?
bool are_identical(BytesPerSecond a, BytesPerSecond b);
/// Also: are the latencies within a factor of two or 0.2 ms?
bool are_identical(const Joint& a, const Joint& b);

/// Groups identical hosts: they have the same connections to all others, as far as measured. Groups
/// ascend by their first host, and hosts within groups. O(pairs measured x groups).
std::vector<std::vector<std::size_t>> find_groups(const Joints& joints);

struct FoundLinks {
  std::vector<cluster::Link> links;
  std::vector<std::optional<BytesPerSecond>> cards;  ///< Node::bandwidth, by host
  /// A measured rate that differs from the written links.
  struct Misfit {
    WireFlow flow;
    BytesPerSecond measured, written;
  };
  std::vector<Misfit> misfits;
  /// Hosts that send or receive more in several flows than a link gives to one.
  std::vector<std::size_t> faster_together;
};

/// Finds the fewest links that explain the measurements, within a tenth:
///
/// - All pairs are identical: one link for all.
/// - Each pair has the rate of its slower host's best connection, and several flows of a slower
///   host together get no more (by a quarter): one link for all, a bandwidth for each slower host.
/// - Otherwise: a link for each group of identical hosts (find_groups), one for all with what most
///   pairs of different groups have, and one for each pair of groups that differs from it.
///
/// A host also gets a bandwidth if its flows over several links get less than nine tenths together
/// of what they get alone. A link gets a capacity if the flows that cross it, at most one per host
/// and direction, get less than seven tenths together. Both are the largest measured sum, for a
/// host the smaller of both directions. Unmeasured pairs, among many hosts, are taken to be like
/// their groups' first ones. Rates are rounded to three digits.
///
/// Example: among a, b and c all pairs have 200 Mbps, except c's with 100, and c sends 100 to both
/// at once. The result is a link for all at 200, and a bandwidth of 100 for c.
FoundLinks find_links(const Wires& wires);

/// Returns the sets of flows to measure together before find_links can find hosts' bandwidths and
/// links' capacities, in this order. First, from and to each host (the first of each group, if all
/// hosts are identical or more than kMostPaired): up to three others, of different groups if
/// possible. Then, across each link: a ring of its nodes, one across its half, or as many disjoint
/// pairs as there are, in both directions.
std::vector<std::vector<WireFlow>> find_loads(const Wires& wires);

/// Up to this number of hosts all pairs are measured.
inline constexpr std::size_t kMostPaired = 16;

}  // namespace motley::control
