#include "motley/control/survey/found_links.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "motley/base/statistics.h"
#include "motley/base/text.h"
#include "motley/cluster/quantity_text.h"

namespace motley::control {
namespace {

constexpr double kIdentical = 0.1;
constexpr double kIdenticalLatency = 2e-4;  // seconds apart
constexpr double kCardLess = 0.9, kSwitchLess = 0.7, kCardMore = 1.25;
constexpr double kMisfit = 0.15;
constexpr std::size_t kAtOnce = 3;         // flows of a host
constexpr std::size_t kWitnesses = 2;      // members of a group that a host is compared with
constexpr std::size_t kMostPairLinks = 6;  // loaded in both directions
constexpr std::size_t kSmall = 4;          // hosts; up to here each pair may have a link

using Group = std::vector<std::size_t>;
using Flows = std::vector<WireFlow>;

NodeId node_of(std::size_t host) { return NodeId(static_cast<std::int64_t>(host)); }

double rounded(double value) {
  if (!(value > 0)) return 0;
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - 2);
  return std::round(value / unit) * unit;
}

/// Rounds to the bits that a person would write and the file parser returns.
BytesPerSecond rounded(BytesPerSecond rate) {
  const BytesPerSecond value(rounded(8 * rate.value) / 8);
  return parse_rate(cluster::short_rate(value)).value_or(value);
}

Seconds rounded(Seconds seconds) {
  const Seconds value(rounded(seconds.value));
  return parse_seconds(cluster::short_seconds(value)).value_or(value);
}

Joint middle(const std::vector<Joint>& joints) {
  std::vector<double> rates, latencies;
  for (const Joint& joint : joints) {
    rates.push_back(joint.bandwidth.value);
    latencies.push_back(joint.latency.value);
  }
  return {rounded(BytesPerSecond(upper_median(rates))), rounded(Seconds(upper_median(latencies)))};
}

cluster::Link make_link(const Group& between, const Joint& joint) {
  cluster::Link link{{}, joint.bandwidth, joint.latency, std::nullopt};
  for (const std::size_t host : between) link.between.push_back(node_of(host));
  return link;
}

bool is_like(const Joints& joints, std::size_t host, std::size_t member) {
  for (const std::size_t other : joints.partners(host)) {
    const Joint* its = other == member ? nullptr : joints.find(member, other);
    if (its != nullptr && !are_identical(*joints.find(host, other), *its)) return false;
  }
  return true;
}

/// Returns the measured pairs between two groups, or within one.
std::vector<Joint> joints_between(const Joints& joints, const Group& a, const Group& b) {
  std::vector<Joint> found;
  for (const std::size_t from : a)
    for (const std::size_t to : b) {
      if (&a == &b && to <= from) continue;
      if (const Joint* joint = joints.find(from, to)) found.push_back(*joint);
    }
  return found;
}

Group all_hosts(std::size_t count) {
  Group hosts(count);
  std::iota(hosts.begin(), hosts.end(), 0);
  return hosts;
}

enum class Direction { kOut, kIn };

/// Are these several flows from one host, or to one host?
bool is_card_load(const Flows& flows, std::size_t host) {
  const auto all = [&](auto end) {
    return std::all_of(flows.begin(), flows.end(),
                       [&](const WireFlow& flow) { return flow.*end == host; });
  };
  return flows.size() > 1 && (all(&WireFlow::from) || all(&WireFlow::to));
}

/// Does each host send, and receive, at most one of several flows?
bool is_switch_load(const Flows& flows) {
  std::set<std::size_t> from, to;
  for (const WireFlow& flow : flows)
    if (!from.insert(flow.from).second || !to.insert(flow.to).second) return false;
  return flows.size() > 1;
}

/// The links as a cluster file has them, and which pair uses which.
class Written {
 public:
  Written(std::size_t hosts, const FoundLinks& found) : cards_(found.cards) {
    cluster_.links = found.links;
    ordered_ = cluster::links_by_preference(cluster_);
    taken_.assign(hosts, std::vector<std::size_t>(hosts, kNone));
    for (std::size_t link = 0; link < ordered_.size(); ++link) take(link, members(link));
  }

  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t count() const { return ordered_.size(); }
  std::size_t hosts() const { return taken_.size(); }
  const cluster::Link& link(std::size_t number) const { return *ordered_[number]; }
  std::size_t taken(const WireFlow& flow) const { return taken_[flow.from][flow.to]; }

  Group members(std::size_t number) const {
    if (link(number).between.empty()) return all_hosts(hosts());
    Group members;
    for (const NodeId node : link(number).between) members.push_back(node.index());
    std::sort(members.begin(), members.end());
    return members;
  }

  BytesPerSecond rate(const WireFlow& flow) const {
    BytesPerSecond rate = link(taken(flow)).bandwidth;
    for (const std::size_t host : {flow.from, flow.to})
      if (cards_[host]) rate = std::min(rate, *cards_[host]);
    return rate;
  }

 private:
  void take(std::size_t link, const Group& members) {
    for (const std::size_t a : members)
      for (const std::size_t b : members)
        if (a != b && taken_[a][b] == kNone) taken_[a][b] = link;
  }

  cluster::Cluster cluster_;  // only its links count
  std::vector<const cluster::Link*> ordered_;
  std::vector<std::vector<std::size_t>> taken_;
  const std::vector<std::optional<BytesPerSecond>>& cards_;
};

class Finding {
 public:
  explicit Finding(const Wires& wires)
      : wires_(wires), joints_(wires), groups_(find_groups(joints_)) {
    found_.cards.resize(wires.hosts);
    if (wires.alone.empty()) return;
    if (!write_one() && !write_cards()) write_groups();
  }

  FoundLinks finish() {
    if (found_.links.empty()) return std::move(found_);
    const Written written(wires_.hosts, found_);
    if (!has_cards_) add_cards(written);
    add_capacities(written);
    for (const Wire& wire : wires_.alone) add_misfit(written, wire.flow);
    return std::move(found_);
  }

  std::vector<Flows> loads() const {
    std::vector<Flows> loads;
    if (found_.links.empty()) return loads;
    for (const std::size_t host : loaded_hosts())
      for (const Direction direction : {Direction::kOut, Direction::kIn})
        if (Flows flows = card_flows(host, direction); flows.size() > 1)
          loads.push_back(std::move(flows));
    const Written written(wires_.hosts, found_);
    for (std::size_t link = 0; link < written.count(); ++link)
      add_switch_flows(written, link, loads);
    return loads;
  }

 private:
  bool write_one() {
    if (groups_.size() != 1) return false;
    found_.links = {make_link({}, middle(joints_between(joints_, groups_[0], groups_[0])))};
    return true;
  }

  /// Largest bandwidth of the host to any other.
  BytesPerSecond width(std::size_t host) const {
    BytesPerSecond width;
    for (const std::size_t other : joints_.partners(host))
      width = std::max(width, joints_.find(host, other)->bandwidth);
    return width;
  }

  /// Identical hosts may have different network cards, so each is loaded while there are few.
  Group loaded_hosts() const {
    if (groups_.size() > 1 && wires_.hosts <= kMostPaired) return all_hosts(wires_.hosts);
    Group firsts;
    for (const Group& group : groups_) firsts.push_back(group.front());
    return firsts;
  }

  /// Loads of several flows of the host by direction, or else those of the first identical host.
  std::vector<const Load*> card_loads(std::size_t host) const {
    std::vector<const Load*> loads;
    for (const Load& load : wires_.loads)
      if (is_card_load(load.flows, host)) loads.push_back(&load);
    const std::size_t first = first_like(host);
    return loads.empty() && first != host ? card_loads(first) : loads;
  }

  /// Rate of several flows of the host, in the slower direction.
  std::optional<BytesPerSecond> together(std::size_t host) const {
    std::optional<BytesPerSecond> least;
    for (const Load* load : card_loads(host))
      least = std::min(least.value_or(BytesPerSecond(load->sum())), BytesPerSecond(load->sum()));
    return least;
  }

  std::size_t first_like(std::size_t host) const {
    for (const Group& group : groups_)
      if (std::find(group.begin(), group.end(), host) != group.end()) return group.front();
    return host;
  }

  bool write_cards() {
    std::vector<BytesPerSecond> widths;
    for (std::size_t host = 0; host < wires_.hosts; ++host) widths.push_back(width(host));
    const BytesPerSecond most = *std::max_element(widths.begin(), widths.end());
    if (!(std::min_element(widths.begin(), widths.end())->value > 0)) return false;
    std::vector<Joint> wide;
    std::vector<double> latencies;
    for (const Wire& wire : wires_.alone) {
      const Joint& joint = *joints_.find(wire.flow.from, wire.flow.to);
      const auto less = std::min(widths[wire.flow.from], widths[wire.flow.to]);
      if (!are_identical(joint.bandwidth, less)) return false;
      if (are_identical(joint.bandwidth, most)) wide.push_back(joint);
      latencies.push_back(joint.latency.value);
    }
    const Seconds usual(upper_median(latencies));
    for (const double latency : latencies)
      if (!are_identical({most, usual}, {most, Seconds(latency)})) return false;
    for (std::size_t host = 0; host < wires_.hosts; ++host) {
      if (are_identical(widths[host], most)) continue;
      const auto at_once = together(host);
      if (at_once && at_once->value > widths[host].value * kCardMore) return reject_cards();
      found_.cards[host] = rounded(widths[host]);
    }
    found_.links = {make_link({}, middle(wide))};
    has_cards_ = true;
    return true;
  }

  bool reject_cards() {
    std::fill(found_.cards.begin(), found_.cards.end(), std::nullopt);
    return false;
  }

  struct Across {
    std::size_t a, b;
    Joint joint;
    std::size_t pairs;
  };

  void write_groups() {
    const std::vector<Across> across = find_across();
    const Joint usual = find_usual(across);
    const bool is_small = wires_.hosts <= kSmall;
    std::set<std::size_t> joined;  // groups that have a link with another group
    for (const Across& each : across)
      if (is_small || !are_identical(each.joint, usual)) joined.insert({each.a, each.b});
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      if (groups_[i].size() < 2) continue;
      const Joint inner = middle(joints_between(joints_, groups_[i], groups_[i]));
      // A group like `usual` needs a link only where another link would replace the common one.
      if (joined.contains(i) || !are_identical(inner, usual))
        found_.links.push_back(make_link(groups_[i], inner));
    }
    if (is_small) return write_pairs();
    for (const Across& each : across)
      if (!are_identical(each.joint, usual))
        found_.links.push_back(make_link(both(groups_[each.a], groups_[each.b]), each.joint));
    found_.links.push_back(make_link({}, usual));
  }

  static Group both(Group a, const Group& b) {
    a.insert(a.end(), b.begin(), b.end());
    std::sort(a.begin(), a.end());
    return a;
  }

  void write_pairs() {
    for (std::size_t a = 0; a < wires_.hosts; ++a)
      for (std::size_t b = a + 1; b < wires_.hosts; ++b)
        if (const Joint* joint = joints_.find(a, b);
            joint != nullptr && first_like(a) != first_like(b))
          found_.links.push_back(make_link({a, b}, middle({*joint})));
  }

  std::vector<Across> find_across() const {
    std::vector<Across> across;
    for (std::size_t a = 0; a < groups_.size(); ++a)
      for (std::size_t b = a + 1; b < groups_.size(); ++b) {
        const std::vector<Joint> measured = joints_between(joints_, groups_[a], groups_[b]);
        if (measured.empty()) continue;
        across.push_back({a, b, middle(measured), groups_[a].size() * groups_[b].size()});
      }
    return across;
  }

  /// Returns the connection of most pairs between groups; of equally frequent ones the slower.
  Joint find_usual(const std::vector<Across>& across) const {
    std::optional<std::pair<std::size_t, double>> most;
    Joint usual{slowest(), Seconds(0)};  // if no two groups were measured
    for (const Across& each : across) {
      std::size_t pairs = 0;
      for (const Across& other : across)
        if (are_identical(each.joint, other.joint)) pairs += other.pairs;
      const std::pair rank(pairs, -each.joint.bandwidth.value);
      if (most && rank <= *most) continue;
      most = rank;
      usual = each.joint;
    }
    return usual;
  }

  BytesPerSecond slowest() const {
    BytesPerSecond least = wires_.alone.front().bandwidth;
    for (const Wire& wire : wires_.alone) least = std::min(least, wire.bandwidth);
    return rounded(least);
  }

  /// Expected rate of several flows of one host, which at a switch has one port for all.
  double expected(const Written& written, const Flows& flows) const {
    std::map<std::size_t, double> by_link;
    for (const WireFlow& flow : flows) by_link[written.taken(flow)] += alone(written, flow);
    double sum = 0;
    for (const auto& [link, rates] : by_link)
      sum += std::min(rates, written.link(link).bandwidth.value);
    return sum;
  }

  double alone(const Written& written, const WireFlow& flow) const {
    const Joint* joint = joints_.find(flow.from, flow.to);
    return joint != nullptr ? joint->bandwidth.value : written.rate(flow).value;
  }

  void add_cards(const Written& written) {
    for (std::size_t host = 0; host < wires_.hosts; ++host) {
      bool is_faster = false;
      std::optional<BytesPerSecond>& card = found_.cards[host];
      for (const Load* load : card_loads(host)) {
        const double wanted = expected(written, load->flows);
        const BytesPerSecond sum = rounded(BytesPerSecond(load->sum()));
        is_faster |= load->sum() > wanted * kCardMore;
        if (load->sum() < wanted * kCardLess && found_.links.size() > 1)
          card = std::min(card.value_or(sum), sum);
      }
      if (is_faster && first_like(host) == host) found_.faster_together.push_back(host);
    }
  }

  void add_capacities(const Written& written) {
    for (cluster::Link& link : found_.links) {
      for (const Load& load : wires_.loads) {
        double wanted = 0;
        bool is_its = is_switch_load(load.flows);
        for (const WireFlow& flow : load.flows) {
          is_its = is_its && written.link(written.taken(flow)) == link_as_written(link);
          if (is_its) wanted += alone(written, flow);
        }
        if (!is_its || load.sum() >= wanted * kSwitchLess) continue;
        const BytesPerSecond sum = rounded(BytesPerSecond(load.sum()));
        link.capacity = std::min(link.capacity.value_or(sum), sum);
      }
    }
  }

  static cluster::Link link_as_written(cluster::Link link) {
    link.capacity.reset();
    return link;
  }

  void add_misfit(const Written& written, const WireFlow& flow) {
    if (flow.from > flow.to) return;  // the slower direction counts
    const BytesPerSecond measured = joints_.find(flow.from, flow.to)->bandwidth;
    const BytesPerSecond said = written.rate(flow);
    if (std::abs(measured.value - said.value) > kMisfit * said.value)
      found_.misfits.push_back({flow, measured, said});
  }

  /// Chooses partners of different groups, those with the highest rate first.
  Flows card_flows(std::size_t host, Direction direction) const {
    std::vector<std::pair<std::size_t, std::size_t>> others;
    for (const Group& group : groups_) {
      std::size_t place = 0;
      for (const std::size_t other : group)
        if (other != host) others.emplace_back(place++, other);
    }
    const auto rate = [&](std::size_t other) {
      const Joint* joint = joints_.find(host, other);
      return joint != nullptr ? joint->bandwidth.value : 0.0;
    };
    std::stable_sort(others.begin(), others.end(), [&](const auto& a, const auto& b) {
      return std::pair(a.first, -rate(a.second)) < std::pair(b.first, -rate(b.second));
    });
    others.resize(std::min(others.size(), kAtOnce));
    Flows flows;
    for (const auto& [place, other] : others)
      flows.push_back(direction == Direction::kOut ? WireFlow{host, other} : WireFlow{other, host});
    return flows;
  }

  static Flows ring(const Group& members, std::size_t stride) {
    Flows flows;
    for (std::size_t i = 0; i < members.size(); ++i)
      flows.push_back({members[i], members[(i + stride) % members.size()]});
    return flows;
  }

  void add_switch_flows(const Written& written, std::size_t link, std::vector<Flows>& loads) const {
    const Group members = written.members(link);
    if (members.size() == 2) {
      if (written.count() <= kMostPairLinks) loads.push_back(ring(members, 1));
      return;
    }
    bool is_whole = true;
    std::set<std::size_t> used;
    Flows pairs;
    for (const std::size_t a : members)
      for (const std::size_t b : members) {
        if (b <= a) continue;
        const bool takes = written.taken({a, b}) == link;
        is_whole = is_whole && takes;
        if (!takes || used.contains(a) || used.contains(b)) continue;
        used.insert({a, b});
        pairs.insert(pairs.end(), {{a, b}, {b, a}});
      }
    if (!is_whole && !pairs.empty()) loads.push_back(std::move(pairs));
    if (!is_whole) return;
    loads.push_back(ring(members, 1));
    if (members.size() > 3) loads.push_back(ring(members, members.size() / 2));
  }

  const Wires& wires_;
  const Joints joints_;
  const std::vector<Group> groups_;
  FoundLinks found_;
  bool has_cards_ = false;
};

}  // namespace

Joints::Joints(const Wires& wires)
    : known_(wires.hosts, std::vector<std::optional<Joint>>(wires.hosts)), partners_(wires.hosts) {
  for (const Wire& wire : wires.alone)
    for (const auto& [a, b] :
         {std::pair(wire.flow.from, wire.flow.to), std::pair(wire.flow.to, wire.flow.from)}) {
      std::optional<Joint>& joint = known_[a][b];
      if (!joint) partners_[a].push_back(b);
      joint = joint ? Joint{std::min(joint->bandwidth, wire.bandwidth),
                            std::max(joint->latency, wire.latency)}
                    : Joint{wire.bandwidth, wire.latency};
    }
  for (std::vector<std::size_t>& partners : partners_) std::sort(partners.begin(), partners.end());
}

const Joint* Joints::find(std::size_t a, std::size_t b) const {
  const std::optional<Joint>& joint = known_[a][b];
  return joint ? &*joint : nullptr;
}

bool are_identical(BytesPerSecond a, BytesPerSecond b) {
  return std::min(a, b).value >= std::max(a, b).value * (1 - kIdentical);
}

bool are_identical(const Joint& a, const Joint& b) {
  const double less = std::min(a.latency, b.latency).value;
  const double more = std::max(a.latency, b.latency).value;
  return are_identical(a.bandwidth, b.bandwidth) &&
         (more <= 2 * less || more - less <= kIdenticalLatency);
}

std::vector<std::vector<std::size_t>> find_groups(const Joints& joints) {
  std::vector<Group> groups;
  for (std::size_t host = 0; host < joints.hosts(); ++host) {
    const auto own = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
      const auto last =
          group.begin() + static_cast<std::ptrdiff_t>(std::min(kWitnesses, group.size()));
      return std::all_of(group.begin(), last,
                         [&](std::size_t member) { return is_like(joints, host, member); });
    });
    if (own != groups.end())
      own->push_back(host);
    else
      groups.push_back({host});
  }
  return groups;
}

FoundLinks find_links(const Wires& wires) { return Finding(wires).finish(); }

std::vector<std::vector<WireFlow>> find_loads(const Wires& wires) {
  return wires.hosts < 2 ? std::vector<Flows>() : Finding(wires).loads();
}

}  // namespace motley::control
