#include "motley/simulate/flow_network.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "motley/base/check.h"

namespace motley::simulate {
namespace {

// Ends round up to whole nanoseconds. Without this, rounding errors would put the ends of equal
// flows a nanosecond apart, in an order that no model gives.
constexpr double kNoise = 1e-3;  // nanoseconds

// Heap order: the earliest is on top.
constexpr auto kLater = [](const auto& a, const auto& b) {
  return a.time != b.time ? a.time > b.time : a.order > b.order;
};
constexpr auto kHigher = [](const auto& a, const auto& b) {
  return a.rate != b.rate ? a.rate > b.rate : a.place > b.place;
};

// Returns nanoseconds until `bytes` have moved; kNever when they do not fit.
trace::Nanoseconds time_for(double bytes, double rate) {
  if (bytes <= 0 || std::isinf(rate)) return 0;
  const double time = std::ceil(bytes / rate * 1e9 - kNoise);
  return time < 9.2e18 ? static_cast<trace::Nanoseconds>(std::max(time, 0.0)) : FlowNetwork::kNever;
}

}  // namespace

FlowNetwork::FlowNetwork(std::vector<double> capacities) : links_(capacities.size()) {
  for (std::size_t i = 0; i < capacities.size(); ++i) {
    MOTLEY_CHECK(capacities[i] > 0);
    links_[i].capacity = capacities[i];
  }
}

std::int32_t FlowNetwork::start(trace::Nanoseconds now, const cost::Flow& flow) {
  MOTLEY_CHECK(flow.bytes >= 0 && flow.most_rate >= 0);
  if (now != now_) {
    MOTLEY_CHECK(now > now_ && now <= next_end());
    now_ = now;
  }
  // Numbers are reused: a long run has millions of flows, few of them in flight.
  if (free_.empty()) {
    free_.push_back(static_cast<std::int32_t>(flows_.size()));
    flows_.emplace_back();
  }
  const std::int32_t number = free_.back();
  free_.pop_back();
  Flow& added = flows_[static_cast<std::size_t>(number)];
  added.remaining = flow.bytes;
  added.most_rate = flow.most_rate;
  added.rate = 0;
  added.since = now;
  added.end = kNever;
  added.order = started_++;
  added.visit = 0;
  added.uses.clear();
  for (const cost::LinkUse& use : flow.uses) {
    MOTLEY_CHECK(use.link >= 0 && static_cast<std::size_t>(use.link) < links_.size());
    MOTLEY_CHECK(use.weight > 0);
    Link& link = links_[static_cast<std::size_t>(use.link)];
    const auto place = static_cast<std::int32_t>(link.members.size());
    link.members.push_back({number, static_cast<std::int32_t>(added.uses.size())});
    added.uses.push_back({use.link, place, use.weight});
  }
  ++under_way_;
  // Unsettled events are of the same time; a new visit number replaces clearing all marks.
  if (reached_links_.empty() && reached_flows_.empty()) ++visits_;
  visit_flow(number);
  return number;
}

trace::Nanoseconds FlowNetwork::next_end() {
  settle();
  return ends_.empty() ? kNever : ends_.front().time;
}

void FlowNetwork::end_next(std::vector<std::int32_t>& ended) {
  const trace::Nanoseconds time = next_end();
  if (time == kNever) return;
  now_ = time;
  ++visits_;
  while (!ends_.empty() && ends_.front().time == time) {
    const std::int32_t flow = ends_.front().flow;
    remove(flow);
    ended.push_back(flow);
    drop_stale_ends();
  }
}

double FlowNetwork::rate(std::int32_t flow) {
  settle();
  return flows_[static_cast<std::size_t>(flow)].rate;
}

// Takes a flow off its links, whose capacity then becomes free.
void FlowNetwork::remove(std::int32_t number) {
  Flow& flow = flows_[static_cast<std::size_t>(number)];
  for (const Use& use : flow.uses) {
    std::vector<Member>& members = links_[static_cast<std::size_t>(use.link)].members;
    const Member last = members.back();
    // The last member moves to the free place and its flow is updated: constant time.
    members[static_cast<std::size_t>(use.place)] = last;
    members.pop_back();
    flows_[static_cast<std::size_t>(last.flow)].uses[static_cast<std::size_t>(last.use)].place =
        use.place;
    visit_link(use.link);
  }
  flow.order = -1;
  free_.push_back(number);
  --under_way_;
}

// Computes the rates of everything that the events at now_ reach.
void FlowNetwork::settle() {
  if (reached_links_.empty() && reached_flows_.empty()) return;
  collect();
  fill();
  for (const std::int32_t number : reached_flows_) {
    apply_rate(flows_[static_cast<std::size_t>(number)], number);
  }
  reached_links_.clear();
  reached_flows_.clear();
  drop_stale_ends();
}

void FlowNetwork::visit_link(std::int32_t number) {
  Link& link = links_[static_cast<std::size_t>(number)];
  if (link.visit == visits_) return;
  link.visit = visits_;
  reached_links_.push_back(number);
}

void FlowNetwork::visit_flow(std::int32_t number) {
  Flow& flow = flows_[static_cast<std::size_t>(number)];
  if (flow.visit == visits_) return;
  flow.visit = visits_;
  reached_flows_.push_back(number);
}

// Follows shared links until nothing new is reached, and prepares it for filling.
void FlowNetwork::collect() {
  std::size_t link = 0, flow = 0;
  while (link < reached_links_.size() || flow < reached_flows_.size()) {
    for (; flow < reached_flows_.size(); ++flow) {
      Flow& reached = flows_[static_cast<std::size_t>(reached_flows_[flow])];
      reached.next_rate = -1;
      for (const Use& use : reached.uses) visit_link(use.link);
    }
    for (; link < reached_links_.size(); ++link) {
      Link& reached = links_[static_cast<std::size_t>(reached_links_[link])];
      reached.left = reached.capacity;
      reached.weight = 0;
      reached.unknown = static_cast<std::int32_t>(reached.members.size());
      for (const Member& member : reached.members) {
        visit_flow(member.flow);
        reached.weight += flows_[static_cast<std::size_t>(member.flow)]
                              .uses[static_cast<std::size_t>(member.use)]
                              .weight;
      }
    }
  }
}

// Progressive filling: all rates rise together until a link is full or a flow is at its most_rate.
// Its flows stay there and the rest rise further. Fixing flows only raises a limit, so a limit too
// low in the heap is checked again when it comes up.
void FlowNetwork::fill() {
  limits_.clear();
  for (const std::int32_t number : reached_links_) {
    const Link& link = links_[static_cast<std::size_t>(number)];
    if (link.unknown > 0) limits_.push_back({link.left / link.weight, number});
  }
  for (const std::int32_t number : reached_flows_) {
    const Flow& flow = flows_[static_cast<std::size_t>(number)];
    if (flow.most_rate > 0) limits_.push_back({flow.most_rate, -1 - number});
    if (flow.uses.empty() && flow.most_rate <= 0) {
      fix_rate(number, std::numeric_limits<double>::infinity());
    }
  }
  std::make_heap(limits_.begin(), limits_.end(), kHigher);
  while (!limits_.empty()) {
    std::pop_heap(limits_.begin(), limits_.end(), kHigher);
    const Limit limit = limits_.back();
    limits_.pop_back();
    if (limit.place < 0) {
      fix_rate(-1 - limit.place, limit.rate);
      continue;
    }
    const Link& link = links_[static_cast<std::size_t>(limit.place)];
    if (link.unknown == 0) continue;
    const double rate = link.left / link.weight;
    if (rate > limit.rate) {
      limits_.push_back({rate, limit.place});
      std::push_heap(limits_.begin(), limits_.end(), kHigher);
      continue;
    }
    for (const Member& member : link.members) fix_rate(member.flow, limit.rate);
  }
}

void FlowNetwork::fix_rate(std::int32_t number, double rate) {
  Flow& flow = flows_[static_cast<std::size_t>(number)];
  if (flow.next_rate >= 0) return;
  flow.next_rate = rate;
  for (const Use& use : flow.uses) {
    Link& link = links_[static_cast<std::size_t>(use.link)];
    link.left -= use.weight * rate;
    link.weight -= use.weight;
    --link.unknown;
  }
}

// A flow whose rate stays keeps its end and is not updated.
void FlowNetwork::apply_rate(Flow& flow, std::int32_t number) {
  if (flow.next_rate == flow.rate) return;
  if (flow.end <= now_) return;  // finished, not yet removed
  flow.remaining =
      std::max(0.0, flow.remaining - flow.rate * (static_cast<double>(now_ - flow.since) * 1e-9));
  flow.since = now_;
  flow.rate = flow.next_rate;
  const trace::Nanoseconds time = time_for(flow.remaining, flow.rate);
  const trace::Nanoseconds end = time < kNever - now_ ? now_ + time : kNever;
  if (end == flow.end) return;
  flow.end = end;
  if (end != kNever) push_end(number);
}

void FlowNetwork::push_end(std::int32_t number) {
  const Flow& flow = flows_[static_cast<std::size_t>(number)];
  ends_.push_back({flow.end, flow.order, number});
  std::push_heap(ends_.begin(), ends_.end(), kLater);
  // Stale ends are dropped when they outweigh the others: log(flows) per end on average.
  if (ends_.size() < 4 * under_way_ + 64) return;
  std::erase_if(ends_, [this](const End& end) { return is_stale(end); });
  std::sort(ends_.begin(), ends_.end(), [](const End& a, const End& b) { return kLater(b, a); });
  ends_.erase(std::unique(ends_.begin(), ends_.end()), ends_.end());  // sorted: a heap
}

bool FlowNetwork::is_stale(const End& end) const {
  const Flow& flow = flows_[static_cast<std::size_t>(end.flow)];
  return flow.order != end.order || flow.end != end.time;
}

void FlowNetwork::drop_stale_ends() {
  while (!ends_.empty() && is_stale(ends_.front())) {
    std::pop_heap(ends_.begin(), ends_.end(), kLater);
    ends_.pop_back();
  }
}

}  // namespace motley::simulate
