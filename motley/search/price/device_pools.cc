#include "motley/search/price/device_pools.h"

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "motley/cluster/kinds.h"

namespace motley::search {
namespace {

using cluster::Cluster;
using cluster::Link;

/// Bandwidth, latency with its sign turned, and 1 if no member is a CPU (groups with one exchange
/// over another backend): larger is better in each, and a group has the worst of its pairs.
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

/// Routes of all pairs. Nodes that the same links name are alike, so few pairs are looked up.
class PairRoutes {
 public:
  PairRoutes(const Cluster& cluster, const std::vector<DeviceId>& devices)
      : cluster_(cluster), devices_(devices) {
    std::map<Signature, int> numbers;
    for (const DeviceId device : devices) {
      const auto signature = signature_of(cluster.device(device));
      signatures_.push_back(
          numbers.emplace(signature, static_cast<int>(numbers.size())).first->second);
    }
    for (std::size_t i = 0; i < devices.size(); ++i) {
      for (std::size_t j = i + 1; j < devices.size(); ++j) (void)look_up(i, j);
    }
  }

  PairRoute at(std::size_t i, std::size_t j) const { return known_.at(key(i, j)); }

  std::set<PairRoute> distinct() const {
    std::set<PairRoute> routes;
    for (const auto& [key, route] : known_) routes.insert(route);
    return routes;
  }

 private:
  struct Signature {
    // Links of this node alone, by their numbers; 0 for no capacity.
    std::vector<std::tuple<double, double, double>> own;
    std::vector<std::size_t> shared;  // links that name it beside others
    double bandwidth = 0;             // of the node itself; 0: none
    bool is_cpu = false;
    auto operator<=>(const Signature&) const = default;
  };
  struct Key {
    int low, high;
    bool one_node;
    auto operator<=>(const Key&) const = default;
  };

  Signature signature_of(const cluster::Device& device) const {
    const NodeId node = device.node;
    Signature signature;
    signature.is_cpu = cluster::is_cpu_kind(device.kind);
    signature.bandwidth = cluster_.node(node).bandwidth.value_or(BytesPerSecond(0.0)).value;
    for (std::size_t i = 0; i < cluster_.links.size(); ++i) {
      const Link& link = cluster_.links[i];
      if (std::count(link.between.begin(), link.between.end(), node) == 0) continue;
      if (link.between.size() == 1) {
        signature.own.emplace_back(link.bandwidth.value, link.latency.value,
                                   link.capacity.value_or(BytesPerSecond(0.0)).value);
      } else {
        signature.shared.push_back(i);
      }
    }
    return signature;
  }

  Key key(std::size_t i, std::size_t j) const {
    const auto [low, high] = std::minmax(signatures_[i], signatures_[j]);
    return {low, high, cluster_.device(devices_[i]).node == cluster_.device(devices_[j]).node};
  }

  PairRoute look_up(std::size_t i, std::size_t j) {
    const auto [found, added] = known_.try_emplace(key(i, j));
    if (added) {
      found->second = group_pair_route(cluster_, {devices_[i], devices_[j]});
    }
    return found->second;
  }

  const Cluster& cluster_;
  const std::vector<DeviceId>& devices_;
  std::vector<int> signatures_;  // by position
  std::map<Key, PairRoute> known_;
};

using Clique = std::vector<std::size_t>;  // positions, increasing

/// Maximal cliques of the graph of pairs at least as good as a route.
class CliqueSearch {
 public:
  CliqueSearch(std::size_t size, std::vector<std::vector<bool>> joined)
      : size_(size), joined_(std::move(joined)) {}

  /// Calls visit(clique) for each until it returns false.
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

  /// Bron-Kerbosch with the pivot that leaves fewest branches; islands need one branch each.
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

std::vector<std::vector<bool>> adjacency(const PairRoutes& routes, std::size_t size,
                                         PairRoute wanted) {
  std::vector<std::vector<bool>> joined(size, std::vector<bool>(size, false));
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t j = i + 1; j < size; ++j) {
      joined[i][j] = joined[j][i] = is_as_good(routes.at(i, j), wanted);
    }
  }
  return joined;
}

/// Finds the fewest members of a clique that have its route: those of a pair with its bandwidth, of
/// one with its latency, which may share a member or be one pair, and a CPU if it has any.
class FewestMembers {
 public:
  FewestMembers(const PairRoutes& routes, const Clique& clique)
      : routes_(routes), clique_(clique), best_(clique) {
    worst_ = routes.at(clique[0], clique[1]);
    for_each_pair([&](std::size_t, std::size_t, const PairRoute& route) {
      for (std::size_t i = 0; i < route.size(); ++i) worst_[i] = std::min(worst_[i], route[i]);
    });
    // With a CPU all pairs are over its backend.
    is_cpu_.assign(*std::max_element(clique.begin(), clique.end()) + 1, 1);
    for_each_pair([&](std::size_t a, std::size_t b, const PairRoute& route) {
      if (route[2] > worst_[2]) is_cpu_[a] = is_cpu_[b] = 0;
    });
  }

  Clique find() {
    Clique narrow, slow;  // pairs apart, with a CPU where there is such a pair
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

  /// The first other member to which the way is as wanted, a CPU if there is one; or none.
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

  /// All three together, and a CPU where none is among them.
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
  std::vector<char> is_cpu_;  // by member; all, where no CPU is needed
  Clique best_;
};

Clique fewest_first(const PairRoutes& routes, const Clique& clique) {
  Clique ordered = FewestMembers(routes, clique).find();
  const auto fewest = static_cast<std::ptrdiff_t>(ordered.size());
  std::sort(ordered.begin(), ordered.end());
  std::copy_if(clique.begin(), clique.end(), std::back_inserter(ordered), [&](std::size_t member) {
    return std::find(ordered.begin(), ordered.begin() + fewest, member) == ordered.begin() + fewest;
  });
  return ordered;
}

/// Every combination of values that occur: what groups may be as good as.
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

DevicePools find_device_pools(const Cluster& cluster, const std::vector<DeviceId>& devices) {
  DevicePools result;
  if (devices.size() < 2) return result;
  const PairRoutes routes(cluster, devices);
  std::set<Clique> cliques;
  for (const PairRoute& wanted : thresholds(routes.distinct())) {
    CliqueSearch search(devices.size(), adjacency(routes, devices.size(), wanted));
    search.run([&](const Clique& clique) {
      if (clique.size() > 1) cliques.insert(clique);
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
  const auto route_of = [&](const std::vector<DeviceId>& group) {
    return group_pair_route(cluster, group);
  };
  const auto add = [&](const std::vector<DeviceId>& group) {
    groups.emplace(std::pair(route_of(group), group.size()), group);
  };
  for (const auto& pool : find_device_pools(cluster, devices).pools) {
    add(pool);
    std::vector<DeviceId> smallest = {pool[0], pool[1]};
    while (route_of(smallest) != route_of(pool)) smallest.push_back(pool[smallest.size()]);
    add(smallest);
  }
  std::vector<std::vector<DeviceId>> result;
  for (auto& [key, group] : groups) result.push_back(std::move(group));
  return result;
}

}  // namespace motley::search
