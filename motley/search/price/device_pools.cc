#include "motley/search/price/device_pools.h"

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "motley/cluster/kinds.h"

namespace motley::search {
namespace {

using cluster::Cluster;
using cluster::Link;

/// Bandwidth, negated latency, and 1 if no member is a CPU (groups with one use another backend).
/// Larger is better in each, and a group has the worst of its pairs.
using PairRoute = std::array<double, 3>;

PairRoute group_pair_route(const Cluster& cluster, const std::vector<DeviceId>& group) {
  const bool has_cpu = std::any_of(group.begin(), group.end(), [&](DeviceId device) {
    return cluster::is_cpu_kind(cluster.device(device).kind);
  });
  const double backend = has_cpu ? 0.0 : 1.0;
  const auto route = cluster::group_route(cluster, group);
  if (!route) return {std::numeric_limits<double>::infinity(), 0.0, backend};
  return {route->bandwidth.value, -route->latency.value, backend};
}

bool is_as_good(const PairRoute& route, const PairRoute& wanted) {
  for (std::size_t i = 0; i < route.size(); ++i) {
    if (route[i] < wanted[i]) return false;
  }
  return true;
}

PairRoute worse(PairRoute route, const PairRoute& other) {
  for (std::size_t i = 0; i < route.size(); ++i) route[i] = std::min(route[i], other[i]);
  return route;
}

/// Routes of all pairs. Nodes named by the same links are identical, so few pairs need a look-up.
class PairRoutes {
 public:
  PairRoutes(const Cluster& cluster, const std::vector<DeviceId>& devices)
      : cluster_(cluster), devices_(devices), links_(cluster::links_by_preference(cluster)) {
    const std::vector<Signature> of_node = node_signatures();
    for (const DeviceId device : devices) {
      Signature signature = of_node[cluster.device(device).node.index()];
      signature.is_cpu = cluster::is_cpu_kind(cluster.device(device).kind);
      const auto [place, is_new] =
          numbers_.emplace(std::move(signature), static_cast<int>(numbers_.size()));
      if (is_new) examples_.push_back({&place->first, std::nullopt, std::nullopt});
      signatures_.push_back(place->second);
    }
    look_up_inside();
    look_up_across();
  }

  /// Devices with equal signatures have identical routes on their node and to other nodes.
  int signature(std::size_t i) const { return signatures_[i]; }
  NodeId node(std::size_t i) const { return cluster_.device(devices_[i]).node; }
  std::size_t size() const { return devices_.size(); }
  PairRoute at(std::size_t i, std::size_t j) const {
    return known_.at(key(signatures_[i], signatures_[j], node(i) == node(j)));
  }
  /// Returns the route of two devices by signature; null if there is no such pair.
  const PairRoute* find(int a, int b, bool one_node) const {
    const auto found = known_.find(key(a, b, one_node));
    return found == known_.end() ? nullptr : &found->second;
  }
  int signatures() const { return static_cast<int>(examples_.size()); }

  std::set<PairRoute> distinct() const {
    std::set<PairRoute> routes;
    for (const auto& [key, route] : known_) routes.insert(route);
    return routes;
  }

 private:
  struct Signature {
    // Links of this node alone: bandwidth, latency, capacity or 0.
    std::vector<std::tuple<double, double, double>> own;
    std::vector<std::size_t> shared;  // links shared with other nodes, the preferred first
    double bandwidth = 0;             // of the node itself; 0: none
    bool is_cpu = false;
    auto operator<=>(const Signature&) const = default;
  };
  /// A signature and up to two nodes with devices of it.
  struct Example {
    const Signature* signature;
    std::optional<NodeId> node, other;
  };
  struct Key {
    int low, high;
    bool one_node;
    auto operator<=>(const Key&) const = default;
  };
  static Key key(int a, int b, bool one_node) { return {std::min(a, b), std::max(a, b), one_node}; }

  std::vector<Signature> node_signatures() const {
    std::vector<Signature> signatures(cluster_.nodes.size());
    for (std::size_t n = 0; n < signatures.size(); ++n)
      signatures[n].bandwidth = cluster_.nodes[n].bandwidth.value_or(BytesPerSecond(0.0)).value;
    for (std::size_t i = 0; i < links_.size(); ++i) {
      const Link& link = *links_[i];
      for (const NodeId node : link.between) {
        Signature& signature = signatures[node.index()];
        if (link.between.size() > 1)
          signature.shared.push_back(i);
        else
          signature.own.emplace_back(link.bandwidth.value, link.latency.value,
                                     link.capacity.value_or(BytesPerSecond(0.0)).value);
      }
    }
    return signatures;
  }

  static double backend_of(const Signature& a, const Signature& b) {
    return a.is_cpu || b.is_cpu ? 0.0 : 1.0;
  }

  static PairRoute route_of(const Link& link, double backend) {
    return {std::min(link.bandwidth, link.capacity.value_or(link.bandwidth)).value,
            -link.latency.value, backend};
  }

  void look_up_inside() {
    std::map<NodeId, std::map<int, int>> counts;
    for (std::size_t i = 0; i < devices_.size(); ++i) ++counts[node(i)][signatures_[i]];
    for (const auto& [node, of_node] : counts)
      for (const auto& [a, count] : of_node) {
        note_node(a, node);
        for (const auto& [b, other_count] : of_node) {
          if (b < a || (a == b && count < 2)) continue;
          const Signature &one = *example(a).signature, &other = *example(b).signature;
          PairRoute route = {kUnlimited, 0.0, backend_of(one, other)};
          for (const auto& [bandwidth, latency, capacity] : one.own)
            route = worse(route, {capacity > 0 ? std::min(bandwidth, capacity) : bandwidth,
                                  -latency, route[2]});
          known_.emplace(key(a, b, true), route);
        }
      }
  }

  /// Finds routes of pairs on two nodes: the preferred link naming both, limited by their cards.
  void look_up_across() {
    for (int a = 0; a < signatures(); ++a)
      for (int b = a; b < signatures(); ++b) {
        const Example &one = example(a), &other = example(b);
        if (one.node == other.node && !one.other && !other.other) continue;
        const Signature &from = *one.signature, &to = *other.signature;
        const Link* link = preferred(from.shared, to.shared);
        PairRoute route = {kUnlimited, 0.0, backend_of(from, to)};
        if (link != nullptr) route = route_of(*link, route[2]);
        for (const double bandwidth : {from.bandwidth, to.bandwidth})
          if (bandwidth > 0) route[0] = std::min(route[0], bandwidth);
        known_.emplace(key(a, b, false), route);
      }
  }

  const Link* preferred(const std::vector<std::size_t>& a,
                        const std::vector<std::size_t>& b) const {
    for (auto i = a.begin(), j = b.begin(); i != a.end() && j != b.end();) {
      if (*i == *j) return links_[*i];
      *i < *j ? ++i : ++j;
    }
    const auto all = std::find_if(links_.begin(), links_.end(),
                                  [](const Link* link) { return link->between.empty(); });
    return all == links_.end() ? nullptr : *all;
  }

  void note_node(int signature, NodeId node) {
    Example& example = examples_[static_cast<std::size_t>(signature)];
    if (!example.node)
      example.node = node;
    else if (example.node != node)
      example.other = node;
  }
  const Example& example(int signature) const {
    return examples_[static_cast<std::size_t>(signature)];
  }

  static constexpr double kUnlimited = std::numeric_limits<double>::infinity();
  const Cluster& cluster_;
  const std::vector<DeviceId>& devices_;
  std::vector<const Link*> links_;
  std::map<Signature, int> numbers_;
  std::vector<int> signatures_;    // by position
  std::vector<Example> examples_;  // by signature
  std::map<Key, PairRoute> known_;
};

using Clique = std::vector<std::size_t>;  // positions, increasing

/// Enumerates maximal cliques of the graph of pairs at least as good as a route.
class CliqueSearch {
 public:
  CliqueSearch(std::size_t size, std::vector<std::vector<bool>> joined)
      : size_(size), joined_(std::move(joined)) {}

  /// Calls visit(clique) for each clique until it returns false.
  void run(const std::function<bool(const Clique&)>& visit) {
    Clique all(size_);
    for (std::size_t i = 0; i < size_; ++i) all[i] = i;
    visit_ = &visit;
    Clique chosen;
    (void)extend(chosen, all, {});
  }

 private:
  Clique neighbours(const Clique& of, std::size_t vertex) const {
    Clique result;
    for (const std::size_t other : of) {
      if (joined_[vertex][other]) result.push_back(other);
    }
    return result;
  }

  /// Bron-Kerbosch with the pivot that leaves the fewest branches; islands need one branch each.
  bool extend(Clique& chosen, Clique candidates, Clique excluded) {
    if (candidates.empty()) return !excluded.empty() || report(chosen);
    std::size_t pivot = candidates.front();
    std::size_t most = 0;
    for (const Clique* set : {&candidates, &excluded}) {
      for (const std::size_t vertex : *set) {
        const std::size_t degree = neighbours(candidates, vertex).size();
        if (degree > most) {
          most = degree;
          pivot = vertex;
        }
        if (most + 1 >= candidates.size()) break;
      }
    }
    const Clique branches = candidates;
    for (const std::size_t vertex : branches) {
      if (joined_[pivot][vertex]) continue;
      chosen.push_back(vertex);
      const bool go_on =
          extend(chosen, neighbours(candidates, vertex), neighbours(excluded, vertex));
      chosen.pop_back();
      if (!go_on) return false;
      candidates.erase(std::find(candidates.begin(), candidates.end(), vertex));
      excluded.push_back(vertex);
    }
    return true;
  }

  bool report(Clique clique) const {
    std::sort(clique.begin(), clique.end());
    return (*visit_)(clique);
  }

  std::size_t size_;
  std::vector<std::vector<bool>> joined_;
  const std::function<bool(const Clique&)>* visit_ = nullptr;
};

/// Devices that are in a clique together or not at all.
struct Bunch {
  int signature = 0;
  NodeId node;
  Clique members;
};

/// Merges devices before the clique search for a wanted route. Of identical devices and nodes that
/// exclude each other in a clique only the first is kept, since the other cliques are identical.
/// Devices joined to the same others become one bunch.
class Bunches {
 public:
  Bunches(const PairRoutes& routes, const std::vector<int>& likeness, const PairRoute& wanted)
      : routes_(routes), likeness_(likeness), wanted_(wanted) {
    for (const auto& [node, places] : first_nodes()) add_node(node, places);
  }

  const std::vector<Bunch>& all() const { return bunches_; }

  std::vector<std::vector<bool>> adjacency() const {
    std::vector<std::vector<bool>> joined(bunches_.size(),
                                          std::vector<bool>(bunches_.size(), false));
    for (std::size_t i = 0; i < bunches_.size(); ++i)
      for (std::size_t j = i + 1; j < bunches_.size(); ++j)
        joined[i][j] = joined[j][i] = are_joined(bunches_[i].signature, bunches_[j].signature,
                                                 bunches_[i].node == bunches_[j].node);
    return joined;
  }

 private:
  /// Positions of devices by signature and likeness.
  using Places = std::map<std::pair<int, int>, Clique>;

  /// True also if there is no such pair.
  bool are_joined(int a, int b, bool one_node) const {
    const PairRoute* route = routes_.find(a, b, one_node);
    return route == nullptr || is_as_good(*route, wanted_);
  }

  std::map<NodeId, Places> first_nodes() {
    std::map<NodeId, Places> nodes;
    for (std::size_t i = 0; i < routes_.size(); ++i)
      nodes[routes_.node(i)][{routes_.signature(i), likeness_[i]}].push_back(i);
    for (const auto& [node, places] : nodes)
      for (const auto& [a, members] : places)
        for (const auto& [b, others] : places) beside_[a.first].insert(b.first);
    std::set<std::vector<std::tuple<int, int, std::size_t>>> known;
    std::erase_if(nodes, [&](const auto& entry) {
      std::vector<std::tuple<int, int, std::size_t>> mark;
      for (const auto& [like, members] : entry.second)
        mark.emplace_back(like.first, like.second, members.size());
      return !known.insert(std::move(mark)).second && is_apart(entry.second);
    });
    return nodes;
  }

  /// Is a node of these devices joined to no node of the same devices?
  bool is_apart(const Places& places) const {
    for (const auto& [a, members] : places)
      for (const auto& [b, others] : places)
        if (are_joined(a.first, b.first, false)) return false;
    return true;
  }

  /// Is the node of devices of this signature irrelevant?
  bool ignores_nodes(int signature) const {
    return are_joined(signature, signature, false) && are_joined(signature, signature, true) &&
           std::all_of(beside_.at(signature).begin(), beside_.at(signature).end(), [&](int other) {
             return are_joined(signature, other, true) == are_joined(signature, other, false);
           });
  }

  void add_node(NodeId node, const Places& places) {
    for (const auto& [like, members] : places) {
      const int signature = like.first;
      const bool are_one = are_joined(signature, signature, true);
      const auto same = std::find_if(bunches_.begin(), bunches_.end(), [&](const Bunch& bunch) {
        return bunch.signature == signature && are_one &&
               (bunch.node == node || ignores_nodes(signature));
      });
      Bunch& bunch = same == bunches_.end() ? bunches_.emplace_back() : *same;
      bunch.signature = signature;
      bunch.node = node;
      const auto taken = are_one ? members.end() : members.begin() + 1;
      bunch.members.insert(bunch.members.end(), members.begin(), taken);
    }
  }

  const PairRoutes& routes_;
  const std::vector<int>& likeness_;
  const PairRoute wanted_;
  std::map<int, std::set<int>> beside_;  // signatures that share a node
  std::vector<Bunch> bunches_;
};

/// Finds the fewest members of a clique that have its route: a pair with its bandwidth, one with
/// its latency (they may share a member or be one pair), and a CPU if the clique has any.
class FewestMembers {
 public:
  FewestMembers(const PairRoutes& routes, const Clique& clique)
      : routes_(routes), clique_(clique), best_(clique) {
    worst_ = routes.at(clique[0], clique[1]);
    for_each_pair([&](std::size_t, std::size_t, const PairRoute& route) {
      for (std::size_t i = 0; i < route.size(); ++i) worst_[i] = std::min(worst_[i], route[i]);
    });
    // With a CPU all pairs use its backend.
    is_cpu_.assign(*std::max_element(clique.begin(), clique.end()) + 1, 1);
    for_each_pair([&](std::size_t a, std::size_t b, const PairRoute& route) {
      if (route[2] > worst_[2]) is_cpu_[a] = is_cpu_[b] = 0;
    });
  }

  Clique find() {
    Clique narrow, slow;  // disjoint pairs, with a CPU if there is such a pair
    for (const std::size_t member : clique_) {
      const Clique by_bandwidth = partner(member, [](bool is_narrow, bool) { return is_narrow; });
      const Clique by_latency = partner(member, [](bool, bool is_slow) { return is_slow; });
      offer({member}, partner(member, [](bool a, bool b) { return a && b; }), {});
      offer({member}, by_bandwidth, by_latency);
      keep_pair(member, by_bandwidth, narrow);
      keep_pair(member, by_latency, slow);
    }
    offer({}, narrow, slow);
    return best_;
  }

 private:
  template <typename Act>
  void for_each_pair(const Act& act) const {
    for (std::size_t i = 0; i < clique_.size(); ++i)
      for (std::size_t j = i + 1; j < clique_.size(); ++j)
        act(clique_[i], clique_[j], routes_.at(clique_[i], clique_[j]));
  }

  bool has_cpu(const Clique& members) const {
    return std::any_of(members.begin(), members.end(), [&](std::size_t m) { return is_cpu_[m]; });
  }

  /// Returns the first other member with a wanted route, preferably a CPU; or none.
  template <typename IsWanted>
  Clique partner(std::size_t member, const IsWanted& is_wanted) const {
    Clique found;
    for (const std::size_t other : clique_) {
      if (other == member) continue;
      const PairRoute route = routes_.at(member, other);
      if (!is_wanted(route[0] == worst_[0], route[1] == worst_[1])) continue;
      if (is_cpu_[other]) return {other};
      if (found.empty()) found = {other};
    }
    return found;
  }

  void keep_pair(std::size_t member, const Clique& other, Clique& pair) const {
    if (other.empty() || has_cpu(pair)) return;
    const Clique made = {member, other[0]};
    if (pair.empty() || has_cpu(made)) pair = made;
  }

  /// Offers all three together, plus a CPU if none is among them.
  void offer(Clique members, const Clique& first, const Clique& second) {
    if (first.empty()) return;
    for (const Clique* part : {&first, &second})
      for (const std::size_t member : *part)
        if (std::find(members.begin(), members.end(), member) == members.end())
          members.push_back(member);
    if (!has_route_but_backend(members)) return;
    if (!has_cpu(members))
      members.push_back(*std::find_if(clique_.begin(), clique_.end(),
                                      [&](std::size_t member) { return is_cpu_[member]; }));
    if (members.size() < best_.size()) best_ = std::move(members);
  }

  bool has_route_but_backend(const Clique& members) const {
    bool is_narrow = false, is_slow = false;
    for (std::size_t i = 0; i < members.size(); ++i)
      for (std::size_t j = i + 1; j < members.size(); ++j) {
        const PairRoute route = routes_.at(members[i], members[j]);
        is_narrow = is_narrow || route[0] == worst_[0];
        is_slow = is_slow || route[1] == worst_[1];
      }
    return is_narrow && is_slow;
  }

  const PairRoutes& routes_;
  const Clique& clique_;
  PairRoute worst_;
  std::vector<char> is_cpu_;  // by member; all true if no CPU is needed
  Clique best_;
};

/// Returns a subset of a clique that has every kind of its pairs: of each signature two on a node,
/// and two nodes of equal devices.
Clique examples_of(const PairRoutes& routes, const Clique& clique) {
  std::map<NodeId, std::vector<std::size_t>> on_node;
  std::map<std::pair<NodeId, int>, int> counts;
  for (const std::size_t member : clique)
    if (++counts[{routes.node(member), routes.signature(member)}] <= 2)
      on_node[routes.node(member)].push_back(member);
  std::map<std::vector<int>, int> nodes;
  Clique examples;
  for (const auto& [node, members] : on_node) {
    std::vector<int> mark;
    for (const std::size_t member : members) mark.push_back(routes.signature(member));
    std::sort(mark.begin(), mark.end());
    if (++nodes[mark] <= 2) examples.insert(examples.end(), members.begin(), members.end());
  }
  std::sort(examples.begin(), examples.end());
  return examples;
}

Clique fewest_first(const PairRoutes& routes, const Clique& clique) {
  const Clique examples = examples_of(routes, clique);
  Clique ordered = FewestMembers(routes, examples).find();
  std::sort(ordered.begin(), ordered.end());
  Clique others;
  std::set_difference(clique.begin(), clique.end(), ordered.begin(), ordered.end(),
                      std::back_inserter(others));
  ordered.insert(ordered.end(), others.begin(), others.end());
  return ordered;
}

/// Returns every combination of occurring values, as thresholds for groups.
std::vector<PairRoute> thresholds(const std::set<PairRoute>& routes) {
  std::array<std::set<double>, 3> values;
  for (const PairRoute& route : routes) {
    for (std::size_t respect = 0; respect < route.size(); ++respect) {
      values[respect].insert(route[respect]);
    }
  }
  std::vector<PairRoute> result;
  for (const double bandwidth : values[0]) {
    for (const double latency : values[1]) {
      for (const double backend : values[2]) result.push_back({bandwidth, latency, backend});
    }
  }
  return result;
}

}  // namespace

DevicePools find_device_pools(const Cluster& cluster, const std::vector<DeviceId>& devices,
                              std::vector<int> likeness) {
  DevicePools result;
  if (devices.size() < 2) return result;
  if (likeness.empty()) {
    likeness.resize(devices.size());
    std::iota(likeness.begin(), likeness.end(), 0);
  }
  const PairRoutes routes(cluster, devices);
  std::set<Clique> cliques;
  for (const PairRoute& wanted : thresholds(routes.distinct())) {
    const Bunches bunches(routes, likeness, wanted);
    CliqueSearch search(bunches.all().size(), bunches.adjacency());
    search.run([&](const Clique& found) {
      Clique clique;
      for (const std::size_t bunch : found)
        clique.insert(clique.end(), bunches.all()[bunch].members.begin(),
                      bunches.all()[bunch].members.end());
      std::sort(clique.begin(), clique.end());
      if (clique.size() > 1) cliques.insert(std::move(clique));
      result.complete = cliques.size() <= kMaxPools;
      return result.complete;
    });
    if (!result.complete) break;
  }
  for (const Clique& clique : cliques) {
    std::vector<DeviceId>& pool = result.pools.emplace_back();
    for (const std::size_t member : fewest_first(routes, clique)) {
      pool.push_back(devices[member]);
    }
  }
  std::stable_sort(result.pools.begin(), result.pools.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return result;
}

std::vector<std::vector<DeviceId>> groups_to_measure(const Cluster& cluster,
                                                     const std::vector<DeviceId>& devices) {
  std::map<std::pair<PairRoute, std::size_t>, std::vector<DeviceId>> groups;
  // Only routes matter, and these are identical on identical nodes.
  const std::vector<int> likeness(devices.size(), 0);
  for (const auto& pool : find_device_pools(cluster, devices, likeness).pools) {
    const PairRoute route = group_pair_route(cluster, pool);
    groups.emplace(std::pair(route, pool.size()), pool);
    std::vector<DeviceId> smallest = {pool[0], pool[1]};
    while (group_pair_route(cluster, smallest) != route) smallest.push_back(pool[smallest.size()]);
    groups.emplace(std::pair(route, smallest.size()), smallest);
  }
  std::vector<std::vector<DeviceId>> result;
  for (auto& [key, group] : groups) result.push_back(std::move(group));
  return result;
}

}  // namespace motley::search
