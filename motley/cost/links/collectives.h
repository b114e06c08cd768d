#pragma once

#include <string_view>
#include <vector>

#include "motley/base/exchange_method.h"
#include "motley/base/ids.h"
#include "motley/base/units.h"
#include "motley/cost/links/network.h"
#include "motley/cost/links/transfer.h"

namespace motley::cost {

enum class Collective { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kAllToAll, kSend };

/// How a collective runs. B is the sum of all ranks' bytes, m the largest of them.
enum class Algorithm {
  /// Around the ring of the ranks in n - 1 steps (a broadcast: along a chain, pipelined; an
  /// all-reduce: a reduce-scatter and an all-gather of B / n). Pads to m: some rank always sends
  /// it.
  kRing,
  /// All-reduce: two binary trees of the nodes, each for half of the bytes, where the inner nodes
  /// of one are leaves of the other (Sanders, Speck, Traeff 2009), chains inside nodes, pipelined.
  /// Broadcast: a binomial tree, ceil(log2 n) rounds.
  kTree,
  /// Exchanges with partners at distance p/2, p/4, ..., 1, halving the bytes (Rabenseifner 2004),
  /// then back, doubling; p is the largest power of two <= n. Each rank beyond p gives its bytes to
  /// a partner before and gets the result from it after. Uneven bytes are padded.
  kHalvingDoubling,
  /// Inside nodes, between them, inside. If all nodes have equally many ranks, rank i of each forms
  /// a ring; else each node's first rank represents it. Uneven bytes are padded.
  kHierarchical,
  /// All pairs at once, each with just its bytes: the native form for uneven parts (grouped sends
  /// and receives, all-to-all with splits). A reduce-scatter sums what it received.
  kDirect,
  /// One pipelined ring broadcast (or reduction) per rank, all at once in one group (NCCL).
  kGrouped,
  /// One broadcast by a binomial tree per rank, one after the other.
  kSeparate,
  /// A reduce-scatter as a ring all-reduce of everything; each rank keeps its part.
  kWhole,
};

enum class Backend { kGloo, kNccl };

std::string_view collective_name(Collective op);  ///< "all_reduce"

/// A collective call. `devices` are the ranks in order; `bytes` holds for each rank:
/// - all-reduce: its part of the tensor; only the sum counts, the algorithms cut evenly;
/// - reduce-scatter: its result; all-gather: its input;
/// - broadcast: the root's bytes are sent, the others' ignored;
/// - all-to-all: what it holds before; rank j gets the share bytes[j] / B of it (resharding from
/// one
///   dimension to another with the same shares);
/// - send: devices[0] sends bytes[0] to devices[1].
struct CollectiveCall {
  Collective op = Collective::kAllReduce;
  std::vector<DeviceId> devices;
  std::vector<double> bytes;
  std::size_t root = 0;  ///< rank of a broadcast
};

/// Returns a call with equal parts for each of the n ranks; `bytes` is the whole (B).
CollectiveCall even_call(Collective op, std::vector<DeviceId> devices, double bytes);

/// Costs at the ends of a transfer, independent of the path. Fitted by collective_fit.h.
struct Transport {
  Seconds latency;       ///< of each message, added to its path's
  double most_rate = 0;  ///< bytes/s of one stream between two ranks; 0: no limit
  Seconds launch;        ///< once per collective
  /// Local copies and sums, for each byte that a rank ends or begins with.
  double seconds_per_byte = 0;
};

/// Returns the algorithms that PyTorch's process groups may use (facts of their sources, and of
/// motley/run/torch): all-reduce ring, with NCCL also tree; broadcast ring, with Gloo tree;
/// all-gather and reduce-scatter direct, padded a ring (Gloo's reduce-scatter: whole), grouped;
/// all-to-all and send direct; hierarchical only if requested. Callers may compose halving-doubling
/// and separate.
std::vector<Algorithm> backend_algorithms(Backend backend, Collective op,
                                          ExchangeMethod method = ExchangeMethod::kNative);
bool is_applicable(Algorithm algorithm, Collective op);

/// Returns the phases of a call, with flows over the network's links; empty for one rank. A
/// lock-step or pipelined algorithm is one flow over all its links, at one rate, as each step waits
/// for its slowest link; weights count how often a link is crossed. Messages of one size that
/// symmetries of the network map to each other are also one flow, as are the broadcasts of even
/// parts around a ring, and uneven parts sent directly. Ranks and devices must exist and be
/// distinct, and the algorithm applicable (checked). O(n) flows and links; grouped uneven parts
/// n^2, separate n^2 log n; uneven parts sent directly take n^2 log n steps.
///
/// Alone in a homogeneous group, if each of n ranks has a port of b bytes/s each way at one switch
/// and a message takes a seconds, with B bytes in even parts and n a power of two:
/// - all-reduce, ring: 2 (n-1) a + 2 (n-1)/n B/b
/// - all-reduce, tree: 2 log2(n) a + 2 B/b; two ranks: 2 a + B/b; three: 4 a + 3/2 B/b
/// - all-reduce, halving-doubling: 2 log2(n) a + 2 (n-1)/n B/b
/// - all-reduce, hierarchical, m nodes of l ranks with ports of c bytes/s inside:
///   2 (l-1 + m-1) a + 2 (l-1)/l B/c + 2 (m-1)/m B/b
/// - all-gather, reduce-scatter: ring, direct, grouped: (n-1) a + (n-1)/n B/b
/// - the same, halving-doubling: log2(n) a + (n-1)/n B/b
/// - all-gather, separate: n log2(n) a + log2(n) B/b
/// - broadcast: ring: (n-1) a + B/b; tree: log2(n) (a + B/b)
/// - all-to-all: (n-1) a + (n-1)/n^2 B/b
/// - all-to-all, hierarchical: (l-1 + m-1) a + (l-1)/l B/(n c) + (m-1)/m B/(n b); direct for
///   unequal nodes
/// Before these come launch + seconds_per_byte * (the most that a rank begins or ends with: B, or
/// for an all-to-all its largest part), without traffic.
///
/// Uneven parts b_i, the largest m: ring and direct (n-1) m/b, grouped max_i (B - b_i)/b <= B/b.
Transfer build_transfer(const Network& network, const CollectiveCall& call, Algorithm algorithm,
                        const Transport& transport);

/// Returns the time of a transfer alone: per phase the slowest of its flows at their most_rate and
/// of its links for all their traffic. Exact if the flows at the fullest link last to the end, as
/// in each phase of a homogeneous group; else a lower bound. O(uses).
Seconds isolated_time(const Transfer& transfer, const std::vector<double>& capacities);

/// The cheapest of one or more algorithms (the first among equals).
struct AlgorithmChoice {
  Algorithm algorithm;
  Transfer transfer;
  Seconds time;  ///< isolated_time
};
AlgorithmChoice best_algorithm(const Network& network, const CollectiveCall& call,
                               const Transport& transport,
                               const std::vector<Algorithm>& candidates);

}  // namespace motley::cost
