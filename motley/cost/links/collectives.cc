#include "motley/cost/links/collectives.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <numeric>
#include <utility>

#include "motley/base/check.h"
#include "motley/cost/links/even_pairs.h"
#include "motley/cost/links/two_trees.h"

namespace motley::cost {
namespace {

using Ranks = std::vector<std::size_t>;

/// A flow that grows hop by hop, and the delay of its messages.
struct Stream {
  Flow flow;
  Seconds slowest;  // latency of the slowest hop
};

class Builder {
 public:
  Builder(const Network& network, const CollectiveCall& call, const Transport& transport)
      : network_(network), call_(call), transport_(transport) {}

  std::size_t size() const { return call_.devices.size(); }
  double whole() const { return std::accumulate(call_.bytes.begin(), call_.bytes.end(), 0.0); }
  double largest() const { return *std::max_element(call_.bytes.begin(), call_.bytes.end()); }
  double bytes(std::size_t rank) const { return call_.bytes[rank]; }
  const std::vector<double>& parts() const { return call_.bytes; }
  double most_rate() const { return transport_.most_rate; }
  Ranks all() const {
    Ranks ranks(size());
    std::iota(ranks.begin(), ranks.end(), std::size_t{0});
    return ranks;
  }
  /// Returns the ranks of each node, nodes in order of their first rank.
  std::vector<Ranks> by_node() const;

  Seconds latency(std::size_t from, std::size_t to) const {
    return transport_.latency + network_.latency(device(from), device(to));
  }
  void add_hop(Stream& stream, std::size_t from, std::size_t to, double weight = 1) const;
  /// Returns one flow along `ranks`, and back to the first if `is_ring`.
  Stream chain(const Ranks& ranks, double bytes, bool is_ring) const;
  /// Returns `steps` lock-steps around a ring, with `bytes` in all on each link.
  TransferPhase ring(const Ranks& ranks, double bytes, std::size_t steps) const;
  /// Returns a pipeline of `bytes` from the first of `ranks` along the others.
  TransferPhase pipeline(const Ranks& ranks, double bytes) const;
  /// A message between two ranks; all of a phase are sent at once.
  struct Message {
    std::size_t from, to;
    double bytes;
  };
  TransferPhase at_once(const std::vector<Message>& messages, std::size_t rounds) const;

  EvenPairs pairs(double bytes) const { return {network_, transport_, call_.devices, bytes}; }
  bool has_even_parts() const {
    return std::equal(call_.bytes.begin() + 1, call_.bytes.end(), call_.bytes.begin());
  }

 private:
  DeviceId device(std::size_t rank) const { return call_.devices[rank]; }

  const Network& network_;
  const CollectiveCall& call_;
  const Transport& transport_;
  mutable std::vector<std::int32_t> links_;  // of a hop
};

std::vector<Ranks> Builder::by_node() const {
  std::vector<Ranks> nodes;
  std::map<NodeId, std::size_t> place;
  for (std::size_t rank = 0; rank < size(); ++rank) {
    const auto [found, is_new] = place.emplace(network_.node(device(rank)), nodes.size());
    if (is_new) nodes.emplace_back();
    nodes[found->second].push_back(rank);
  }
  return nodes;
}

void Builder::add_hop(Stream& stream, std::size_t from, std::size_t to, double weight) const {
  links_.clear();
  const Seconds latency = network_.add_path(device(from), device(to), links_);
  for (const std::int32_t link : links_) stream.flow.uses.push_back({link, weight});
  stream.slowest = std::max(stream.slowest, transport_.latency + latency);
}

Stream Builder::chain(const Ranks& ranks, double bytes, bool is_ring) const {
  Stream stream;
  for (std::size_t i = 0; i + 1 < ranks.size(); ++i) add_hop(stream, ranks[i], ranks[i + 1]);
  if (is_ring) add_hop(stream, ranks.back(), ranks.front());
  merge_uses(stream.flow);
  stream.flow.bytes = bytes;
  stream.flow.most_rate = transport_.most_rate;
  return stream;
}

TransferPhase Builder::ring(const Ranks& ranks, double bytes, std::size_t steps) const {
  if (ranks.size() < 2) return {};
  Stream stream = chain(ranks, bytes, true);
  return {static_cast<double>(steps) * stream.slowest, {std::move(stream.flow)}};
}

TransferPhase Builder::pipeline(const Ranks& ranks, double bytes) const {
  if (ranks.size() < 2) return {};
  Seconds delay;
  for (std::size_t i = 0; i + 1 < ranks.size(); ++i) delay += latency(ranks[i], ranks[i + 1]);
  return {delay, {chain(ranks, bytes, false).flow}};
}

TransferPhase Builder::at_once(const std::vector<Message>& messages, std::size_t rounds) const {
  TransferPhase phase;
  Seconds slowest;
  for (const Message& message : messages) {
    if (message.bytes <= 0) continue;
    Stream stream = chain({message.from, message.to}, message.bytes, false);
    slowest = std::max(slowest, stream.slowest);
    phase.flows.push_back(std::move(stream.flow));
  }
  if (phase.flows.empty()) return {};
  phase.delay = slowest + static_cast<double>(rounds - 1) * transport_.latency;
  return phase;
}

// Makes one flow of all: they advance at one rate, that of the slowest.
void join_flows(TransferPhase& phase) {
  if (phase.flows.size() < 2) return;
  Flow all{phase.flows.front().bytes};
  double limit = 0;  // seconds
  for (const Flow& flow : phase.flows) {
    if (flow.most_rate > 0) limit = std::max(limit, flow.bytes / flow.most_rate);
    for (const LinkUse& use : flow.uses) all.uses.push_back({use.link, use.weight * flow.bytes});
  }
  for (LinkUse& use : all.uses) use.weight /= all.bytes;
  merge_uses(all);
  if (limit > 0) all.most_rate = all.bytes / limit;
  phase.flows = {std::move(all)};
}

// Merges phases of members that work in parallel: the slowest delay, all flows.
TransferPhase beside(std::vector<TransferPhase> phases) {
  TransferPhase all;
  for (TransferPhase& phase : phases) {
    all.delay = std::max(all.delay, phase.delay);
    for (Flow& flow : phase.flows) all.flows.push_back(std::move(flow));
  }
  return all;
}

void append(Transfer& transfer, TransferPhase phase) {
  if (phase.delay > Seconds(0.0) || !phase.flows.empty()) {
    transfer.phases.push_back(std::move(phase));
  }
}

Ranks rotated(const Ranks& ranks, std::size_t first) {
  Ranks result(ranks.begin() + static_cast<std::ptrdiff_t>(first), ranks.end());
  result.insert(result.end(), ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(first));
  return result;
}

Transfer ring_transfer(const Builder& builder, Collective op, std::size_t root) {
  const std::size_t n = builder.size();
  const auto steps = static_cast<double>(n - 1);
  Transfer transfer;
  if (op == Collective::kAllReduce) {
    const double bytes = 2 * steps / static_cast<double>(n) * builder.whole();
    append(transfer, builder.ring(builder.all(), bytes, 2 * (n - 1)));
  } else if (op == Collective::kBroadcast) {
    append(transfer, builder.pipeline(rotated(builder.all(), root), builder.bytes(root)));
  } else {
    append(transfer, builder.ring(builder.all(), steps * builder.largest(), n - 1));
  }
  return transfer;
}

// The edges of both trees and of the chains inside nodes, up and down, with their shares of bytes.
class TwoTrees {
 public:
  explicit TwoTrees(const Builder& builder) : builder_(builder), nodes_(builder.by_node()) {
    for (const bool is_twin : {false, true}) {
      for (std::size_t number = 0; number < nodes_.size(); ++number) add_node(number, is_twin);
    }
  }
  Transfer transfer(double bytes) {
    merge_uses(stream_.flow);
    stream_.flow.bytes = bytes;
    stream_.flow.most_rate = builder_.most_rate();  // some edge is in both trees
    return {{{2.0 * deepest_, {std::move(stream_.flow)}}}};
  }

 private:
  const Ranks& node(std::size_t number, bool is_twin) const {
    return nodes_[is_twin ? twin(number, nodes_.size()) : number];
  }
  // Adds the edges up to the node's parent and inside the node.
  void add_node(std::size_t number, bool is_twin) {
    Seconds depth;
    const Ranks& local = node(number, is_twin);
    for (std::size_t at = number; at != 0; at = tree_parent(at, nodes_.size())) {
      const std::size_t from = node(at, is_twin).front();
      const std::size_t to = node(tree_parent(at, nodes_.size()), is_twin).front();
      depth += builder_.latency(from, to);
      if (at == number) add_edge(from, to);
    }
    for (std::size_t i = 0; i + 1 < local.size(); ++i) {
      add_edge(local[i + 1], local[i]);
      depth += builder_.latency(local[i + 1], local[i]);
    }
    deepest_ = std::max(deepest_, depth);
  }
  void add_edge(std::size_t a, std::size_t b) {
    builder_.add_hop(stream_, a, b, 0.5);
    builder_.add_hop(stream_, b, a, 0.5);
  }

  const Builder& builder_;
  std::vector<Ranks> nodes_;
  Stream stream_;
  Seconds deepest_;
};

// Appends rounds in which all ranks that have the data send it to as many others.
void append_binomial(const Builder& builder, std::size_t root, double bytes, Transfer& transfer) {
  const std::size_t n = builder.size();
  for (std::size_t have = 1; have < n; have *= 2) {
    std::vector<Builder::Message> messages;
    for (std::size_t i = 0; i < have && i + have < n; ++i) {
      messages.push_back({(root + i) % n, (root + i + have) % n, bytes});
    }
    append(transfer, builder.at_once(messages, 1));
  }
}

Transfer halving_doubling(const Builder& builder, Collective op) {
  const std::size_t n = builder.size(), p = std::bit_floor(n);
  const bool scatters = op != Collective::kAllGather, gathers = op != Collective::kReduceScatter;
  const double all =
      op == Collective::kAllReduce ? builder.whole() : builder.largest() * static_cast<double>(n);
  const double part = op == Collective::kAllReduce ? all : builder.largest();
  const double block = op == Collective::kAllReduce ? all / static_cast<double>(p)
                                                    : builder.largest() * (n > p ? 2 : 1);
  const auto exchange = [&](std::size_t distance) {
    std::vector<Builder::Message> messages;
    for (std::size_t rank = 0; rank < p; ++rank) {
      messages.push_back({rank, rank ^ distance, block * static_cast<double>(distance)});
    }
    return builder.at_once(messages, 1);
  };
  std::vector<Builder::Message> fold, unfold;
  for (std::size_t rank = p; rank < n; ++rank) {
    fold.push_back({rank, rank - p, scatters ? all : part});
    unfold.push_back({rank - p, rank, gathers ? all : part});
  }
  Transfer transfer;
  append(transfer, builder.at_once(fold, 1));
  for (std::size_t d = p / 2; scatters && d > 0; d /= 2) append(transfer, exchange(d));
  for (std::size_t d = 1; gathers && d < p; d *= 2) append(transfer, exchange(d));
  append(transfer, builder.at_once(unfold, 1));
  return transfer;
}

// Returns the ranks at each position of all nodes, which have equal sizes.
std::vector<Ranks> across(const std::vector<Ranks>& nodes) {
  std::vector<Ranks> rings(nodes.front().size());
  for (const Ranks& node : nodes) {
    for (std::size_t i = 0; i < node.size(); ++i) rings[i].push_back(node[i]);
  }
  return rings;
}

// Returns one ring per member of `groups`, all at once; each link carries `bytes` in `steps` steps.
TransferPhase rings(const Builder& builder, const std::vector<Ranks>& groups, double bytes,
                    std::size_t steps) {
  std::vector<TransferPhase> phases;
  for (const Ranks& group : groups) phases.push_back(builder.ring(group, bytes, steps));
  return beside(std::move(phases));
}

// A reduce-scatter or all-gather of uneven parts, by place among `ranks`, all pairs at once.
TransferPhase direct_parts(const Builder& builder, Collective op, const Ranks& ranks,
                           const std::vector<double>& parts) {
  std::vector<Builder::Message> messages;
  for (std::size_t from = 0; from < ranks.size(); ++from)
    for (std::size_t to = 0; to < ranks.size(); ++to)
      if (from != to)
        messages.push_back(
            {ranks[from], ranks[to], parts[op == Collective::kAllGather ? from : to]});
  TransferPhase phase = builder.at_once(messages, std::max<std::size_t>(ranks.size(), 2) - 1);
  join_flows(phase);
  return phase;
}

// For nodes of equal size: the members at each position exchange among themselves, and those of a
// node what belongs to its positions.
Transfer uneven_hierarchy(const Builder& builder, Collective op, const std::vector<Ranks>& nodes) {
  const std::vector<Ranks> rows = across(nodes);
  std::vector<TransferPhase> inside, outside;
  std::vector<double> of_row;
  for (const Ranks& row : rows) {
    std::vector<double> parts;
    for (const std::size_t rank : row) parts.push_back(builder.bytes(rank));
    of_row.push_back(std::accumulate(parts.begin(), parts.end(), 0.0));
    outside.push_back(direct_parts(builder, op, row, parts));
  }
  for (const Ranks& node : nodes) inside.push_back(direct_parts(builder, op, node, of_row));
  Transfer transfer;
  if (op == Collective::kReduceScatter) append(transfer, beside(std::move(inside)));
  append(transfer, beside(std::move(outside)));
  if (op == Collective::kAllGather) append(transfer, beside(std::move(inside)));
  return transfer;
}

// For nodes of equal size: scatter inside, exchange across by a ring per position, gather inside.
Transfer even_hierarchy(const Builder& builder, Collective op, const std::vector<Ranks>& nodes) {
  const std::size_t m = nodes.size(), l = nodes.front().size();
  const auto inside = static_cast<double>(l - 1), outside = static_cast<double>(m - 1);
  const double part = op == Collective::kAllReduce ? builder.whole() / static_cast<double>(m * l)
                                                   : builder.largest();
  const bool scatters = op != Collective::kAllGather, gathers = op != Collective::kReduceScatter;
  const double local_bytes = inside * static_cast<double>(m) * part;
  Transfer transfer;
  if (scatters) append(transfer, rings(builder, nodes, local_bytes, l - 1));
  const std::size_t times = op == Collective::kAllReduce ? 2 : 1;
  append(transfer, rings(builder, across(nodes), static_cast<double>(times) * outside * part,
                         times * (m - 1)));
  if (gathers) append(transfer, rings(builder, nodes, local_bytes, l - 1));
  return transfer;
}

enum class Direction { kOut, kIn };  // from each node's first rank, or to it

// Sends everything along a chain inside each node.
TransferPhase local_pipelines(const Builder& builder, std::vector<Ranks> nodes, double bytes,
                              Direction direction) {
  std::vector<TransferPhase> phases;
  for (Ranks& node : nodes) {
    if (direction == Direction::kIn) std::reverse(node.begin(), node.end());
    phases.push_back(builder.pipeline(node, bytes));
  }
  return beside(std::move(phases));
}

// Sends the others' parts separately.
TransferPhase local_parts(const Builder& builder, const std::vector<Ranks>& nodes,
                          Direction direction) {
  std::vector<TransferPhase> phases;
  for (const Ranks& node : nodes) {
    std::vector<Builder::Message> messages;
    for (std::size_t i = 1; i < node.size(); ++i) {
      const double bytes = builder.bytes(node[i]);
      messages.push_back(direction == Direction::kOut
                             ? Builder::Message{node.front(), node[i], bytes}
                             : Builder::Message{node[i], node.front(), bytes});
    }
    phases.push_back(builder.at_once(messages, std::max<std::size_t>(messages.size(), 1)));
  }
  return beside(std::move(phases));
}

Transfer leader_hierarchy(const Builder& builder, Collective op, const std::vector<Ranks>& nodes) {
  const std::size_t m = nodes.size();
  const auto outside = static_cast<double>(m - 1);
  Ranks leaders;
  std::vector<double> parts;
  for (const Ranks& node : nodes) {
    leaders.push_back(node.front());
    double& sum = parts.emplace_back(0);
    for (const std::size_t rank : node) sum += builder.bytes(rank);
  }
  const auto everything = [&](Direction direction) {
    return local_pipelines(builder, nodes, builder.whole(), direction);
  };
  Transfer transfer;
  if (op == Collective::kAllReduce) {
    append(transfer, everything(Direction::kIn));
    const double bytes = 2 * outside / static_cast<double>(m) * builder.whole();
    append(transfer, builder.ring(leaders, bytes, 2 * (m - 1)));
    append(transfer, everything(Direction::kOut));
  } else if (op == Collective::kReduceScatter) {
    append(transfer, everything(Direction::kIn));
    append(transfer, direct_parts(builder, op, leaders, parts));
    append(transfer, local_parts(builder, nodes, Direction::kOut));
  } else {
    append(transfer, local_parts(builder, nodes, Direction::kIn));
    append(transfer, direct_parts(builder, op, leaders, parts));
    append(transfer, everything(Direction::kOut));
  }
  return transfer;
}

// The root's node is first in the chain of leaders, and the root is first on its node.
Transfer hierarchical_broadcast(const Builder& builder, std::vector<Ranks> nodes,
                                std::size_t root) {
  const auto of_root = std::find_if(nodes.begin(), nodes.end(), [&](const Ranks& node) {
    return std::find(node.begin(), node.end(), root) != node.end();
  });
  std::rotate(nodes.begin(), of_root, nodes.end());
  const auto at = std::find(nodes.front().begin(), nodes.front().end(), root);
  std::rotate(nodes.front().begin(), at, nodes.front().end());
  Ranks leaders;
  for (const Ranks& node : nodes) leaders.push_back(node.front());
  Transfer transfer;
  append(transfer, builder.pipeline(leaders, builder.bytes(root)));
  append(transfer, local_pipelines(builder, nodes, builder.bytes(root), Direction::kOut));
  return transfer;
}

double direct_bytes(const Builder& builder, Collective op, std::size_t from, std::size_t to) {
  if (op == Collective::kAllGather) return builder.bytes(from);
  if (op == Collective::kReduceScatter) return builder.bytes(to);
  return builder.whole() > 0 ? builder.bytes(from) * builder.bytes(to) / builder.whole() : 0;
}

Transfer direct(const Builder& builder, Collective op) {
  const std::size_t n = builder.size();
  Transfer transfer;
  if (op != Collective::kSend && builder.has_even_parts()) {
    if (!(builder.largest() > 0)) return transfer;
    EvenPairs pairs = builder.pairs(direct_bytes(builder, op, 0, 1));
    pairs.add_inside();
    pairs.add_across(EvenPairs::Which::kAll);
    append(transfer, std::move(pairs).take(n - 1));
    return transfer;
  }
  if (op == Collective::kAllGather || op == Collective::kReduceScatter) {
    append(transfer, direct_parts(builder, op, builder.all(), builder.parts()));
    return transfer;
  }
  std::vector<Builder::Message> messages;
  if (op == Collective::kSend) messages.push_back({0, 1, builder.bytes(0)});
  for (std::size_t from = 0; op != Collective::kSend && from < n; ++from) {
    for (std::size_t step = 1; step < n; ++step) {
      const std::size_t to = (from + step) % n;
      messages.push_back({from, to, direct_bytes(builder, op, from, to)});
    }
  }
  append(transfer, builder.at_once(messages, op == Collective::kSend ? 1 : n - 1));
  return transfer;
}

bool is_even(const std::vector<Ranks>& nodes) {
  return std::all_of(nodes.begin(), nodes.end(),
                     [&](const Ranks& node) { return node.size() == nodes.front().size(); });
}

// Moves parts inside nodes to the receiver's position, then between the members at each position.
Transfer all_to_all_hierarchy(const Builder& builder, const std::vector<Ranks>& nodes) {
  if (!is_even(nodes)) return direct(builder, Collective::kAllToAll);
  const auto share = [&](std::size_t size) {
    return builder.largest() / static_cast<double>(size);
  };
  const auto rounds = [](std::size_t size) { return std::max<std::size_t>(size, 2) - 1; };
  Transfer transfer;
  if (!(builder.largest() > 0)) return transfer;
  EvenPairs inside = builder.pairs(share(nodes.front().size()));
  inside.add_inside();
  append(transfer, std::move(inside).take(rounds(nodes.front().size())));
  EvenPairs between = builder.pairs(share(nodes.size()));
  between.add_across(EvenPairs::Which::kSamePlace);
  append(transfer, std::move(between).take(rounds(nodes.size())));
  return transfer;
}

Transfer hierarchical(const Builder& builder, Collective op, std::size_t root) {
  const std::vector<Ranks> nodes = builder.by_node();
  if (op == Collective::kAllToAll) return all_to_all_hierarchy(builder, nodes);
  if (op == Collective::kBroadcast) return hierarchical_broadcast(builder, nodes, root);
  if (!is_even(nodes)) return leader_hierarchy(builder, op, nodes);
  return op == Collective::kAllReduce || builder.has_even_parts()
             ? even_hierarchy(builder, op, nodes)
             : uneven_hierarchy(builder, op, nodes);
}

// Moves even parts around the ring, as far as the rank before: each hop carries n - 1 of n parts.
TransferPhase even_group(const Builder& builder) {
  const Ranks ranks = builder.all();
  const auto times = static_cast<double>(ranks.size() - 1);
  Stream stream = builder.chain(ranks, builder.largest(), true);
  for (LinkUse& use : stream.flow.uses) use.weight *= times;
  Seconds all = builder.latency(ranks.back(), ranks.front()), least = all;
  for (std::size_t i = 0; i + 1 < ranks.size(); ++i) {
    const Seconds hop = builder.latency(ranks[i], ranks[i + 1]);
    all += hop;
    least = std::min(least, hop);
  }
  return {all - least, {std::move(stream.flow)}};
}

// A broadcast goes from a rank along the ring; a reduction comes to it along the ring.
Transfer grouped(const Builder& builder, Collective op) {
  if (builder.has_even_parts() && builder.largest() > 0) return {{even_group(builder)}};
  std::vector<TransferPhase> phases;
  for (std::size_t rank = 0; rank < builder.size(); ++rank) {
    if (builder.bytes(rank) <= 0) continue;
    const std::size_t first = op == Collective::kAllGather ? rank : (rank + 1) % builder.size();
    phases.push_back(builder.pipeline(rotated(builder.all(), first), builder.bytes(rank)));
  }
  Transfer transfer;
  append(transfer, beside(std::move(phases)));
  return transfer;
}

Transfer separate(const Builder& builder) {
  Transfer transfer;
  for (std::size_t rank = 0; rank < builder.size(); ++rank) {
    append_binomial(builder, rank, builder.bytes(rank), transfer);
  }
  return transfer;
}

bool are_distinct(std::vector<DeviceId> devices) {
  std::sort(devices.begin(), devices.end());
  return std::adjacent_find(devices.begin(), devices.end()) == devices.end();
}

Transfer build_phases(const Builder& builder, const CollectiveCall& call, Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kRing:
      return ring_transfer(builder, call.op, call.root);
    case Algorithm::kTree: {
      if (call.op == Collective::kAllReduce) return TwoTrees(builder).transfer(builder.whole());
      Transfer transfer;
      append_binomial(builder, call.root, builder.bytes(call.root), transfer);
      return transfer;
    }
    case Algorithm::kHalvingDoubling:
      return halving_doubling(builder, call.op);
    case Algorithm::kHierarchical:
      return hierarchical(builder, call.op, call.root);
    case Algorithm::kDirect:
      return direct(builder, call.op);
    case Algorithm::kGrouped:
      return grouped(builder, call.op);
    case Algorithm::kSeparate:
      return separate(builder);
    case Algorithm::kWhole:
      return ring_transfer(builder, Collective::kAllReduce, 0);
  }
  return {};
}

// Returns the most bytes that a rank begins or ends with.
double held_bytes(const Builder& builder, const CollectiveCall& call) {
  if (call.op == Collective::kBroadcast) return builder.bytes(call.root);
  if (call.op == Collective::kSend) return builder.bytes(0);
  return call.op == Collective::kAllToAll ? builder.largest() : builder.whole();
}

}  // namespace

std::string_view collective_name(Collective op) {
  constexpr std::array<std::string_view, 6> kNames = {"all_reduce", "reduce_scatter", "all_gather",
                                                      "broadcast",  "all_to_all",     "send"};
  return kNames[static_cast<std::size_t>(op)];
}

CollectiveCall even_call(Collective op, std::vector<DeviceId> devices, double bytes) {
  const std::size_t n = devices.size();
  const bool is_one = op == Collective::kBroadcast || op == Collective::kSend;
  const double each = is_one ? bytes : bytes / static_cast<double>(n);
  return {op, std::move(devices), std::vector<double>(n, each)};
}

std::vector<Algorithm> backend_algorithms(Backend backend, Collective op, ExchangeMethod method) {
  using enum Algorithm;
  const bool is_gloo = backend == Backend::kGloo;
  if (method == ExchangeMethod::kHierarchical) return {kHierarchical};
  switch (op) {
    case Collective::kAllReduce:
      return is_gloo ? std::vector{kRing} : std::vector{kRing, kTree};
    case Collective::kReduceScatter:
    case Collective::kAllGather:
      if (method == ExchangeMethod::kNative) return {kDirect};
      if (method == ExchangeMethod::kGrouped) return {kGrouped};
      return {is_gloo && op == Collective::kReduceScatter ? kWhole : kRing};
    case Collective::kBroadcast:
      return {is_gloo ? kTree : kRing};
    case Collective::kAllToAll:
    case Collective::kSend:
      return {kDirect};
  }
  return {};
}

bool is_applicable(Algorithm algorithm, Collective op) {
  using enum Collective;
  const bool is_parted = op == kReduceScatter || op == kAllGather;
  switch (algorithm) {
    case Algorithm::kRing:
      return is_parted || op == kAllReduce || op == kBroadcast;
    case Algorithm::kHierarchical:
      return is_parted || op == kAllReduce || op == kBroadcast || op == kAllToAll;
    case Algorithm::kTree:
      return op == kAllReduce || op == kBroadcast;
    case Algorithm::kHalvingDoubling:
      return is_parted || op == kAllReduce;
    case Algorithm::kDirect:
      return is_parted || op == kAllToAll || op == kSend;
    case Algorithm::kGrouped:
      return is_parted;
    case Algorithm::kSeparate:
      return op == kAllGather;
    case Algorithm::kWhole:
      return op == kReduceScatter;
  }
  return false;
}

Transfer build_transfer(const Network& network, const CollectiveCall& call, Algorithm algorithm,
                        const Transport& transport) {
  MOTLEY_CHECK(is_applicable(algorithm, call.op));
  MOTLEY_CHECK(!call.devices.empty() && call.bytes.size() == call.devices.size());
  MOTLEY_CHECK(call.op != Collective::kSend || call.devices.size() == 2);
  MOTLEY_CHECK(are_distinct(call.devices));
  if (call.devices.size() < 2) return {};
  const Builder builder(network, call, transport);
  Transfer transfer = build_phases(builder, call, algorithm);
  const Seconds local =
      transport.launch + Seconds(transport.seconds_per_byte * held_bytes(builder, call));
  if (local > Seconds(0.0) && transfer.phases.empty()) transfer.phases.emplace_back();
  if (!transfer.phases.empty()) transfer.phases.front().delay += local;
  return transfer;
}

Seconds isolated_time(const Transfer& transfer, const std::vector<double>& capacities) {
  Seconds time;
  std::vector<double> crossing(capacities.size(), 0.0);  // bytes, by link
  std::vector<std::size_t> crossed;
  for (const TransferPhase& phase : transfer.phases) {
    double slowest = 0;
    for (const Flow& flow : phase.flows) {
      if (flow.most_rate > 0) slowest = std::max(slowest, flow.bytes / flow.most_rate);
      for (const LinkUse& use : flow.uses) {
        crossed.push_back(static_cast<std::size_t>(use.link));
        crossing[crossed.back()] += use.weight * flow.bytes;
      }
    }
    for (const std::size_t link : crossed)
      slowest = std::max(slowest, std::exchange(crossing[link], 0.0) / capacities[link]);
    crossed.clear();
    time += phase.delay + Seconds(slowest);
  }
  return time;
}

AlgorithmChoice best_algorithm(const Network& network, const CollectiveCall& call,
                               const Transport& transport,
                               const std::vector<Algorithm>& candidates) {
  MOTLEY_CHECK(!candidates.empty());
  const std::vector<double> capacities = network.capacities();
  std::vector<AlgorithmChoice> choices;
  for (const Algorithm algorithm : candidates) {
    Transfer transfer = build_transfer(network, call, algorithm, transport);
    const Seconds time = isolated_time(transfer, capacities);
    choices.push_back({algorithm, std::move(transfer), time});
  }
  const auto best = std::min_element(
      choices.begin(), choices.end(),
      [](const AlgorithmChoice& a, const AlgorithmChoice& b) { return a.time < b.time; });
  return std::move(*best);
}

}  // namespace motley::cost
