#include "motley/report/waits.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace motley::report {
namespace {

using trace::Interval;
using trace::Nanoseconds;
using trace::StepMark;

/// Identifies an exchange of a step: the n-th of its name.
using Meeting = std::tuple<std::int64_t, std::string_view, int>;

/// The intervals of each device, ordered by begin, and the members of collectives.
struct Sorted {
  std::vector<std::vector<const Interval*>> compute, exchanges;
  std::map<const Interval*, Meeting> meeting_of;
  std::map<Meeting, std::vector<const Interval*>> members;
};

Sorted sort_intervals(const trace::Trace& trace) {
  Sorted sorted;
  sorted.compute.resize(trace.devices.size());
  sorted.exchanges.resize(trace.devices.size());
  std::map<std::tuple<int, std::int64_t, std::string_view>, int> seen;
  for (const Interval& each : trace.intervals) {
    const auto device = static_cast<std::size_t>(each.device);
    const bool is_exchange = each.lane != Lane::kCompute || each.bytes > 0;
    (is_exchange ? sorted.exchanges : sorted.compute)[device].push_back(&each);
    if (each.lane == Lane::kPeer || !is_exchange) continue;
    const std::string_view name = trace.names[device][each.instruction.index()];
    const Meeting meeting(each.step, name, seen[{each.device, each.step, name}]++);
    sorted.meeting_of[&each] = meeting;
    sorted.members[meeting].push_back(&each);
  }
  for (auto* lists : {&sorted.compute, &sorted.exchanges})
    for (auto& list : *lists)
      std::stable_sort(list.begin(), list.end(),
                       [](const Interval* a, const Interval* b) { return a->begin < b->begin; });
  return sorted;
}

/// Returns when the device last computed, at or before `moment`; 0: never.
Nanoseconds last_compute(const std::vector<const Interval*>& compute, Nanoseconds moment) {
  const auto after = std::partition_point(compute.begin(), compute.end(),
                                          [&](const Interval* i) { return i->end <= moment; });
  return after == compute.begin() ? 0 : (*std::prev(after))->end;
}

/// The device that came last, and when.
struct Late {
  int device = -1;
  Nanoseconds came = 0;
};

Late last_member(const Sorted& sorted, const Interval& exchange) {
  Late late;
  Nanoseconds latest = -1;
  const auto& members = sorted.members.at(sorted.meeting_of.at(&exchange));
  const bool all_at_once = std::all_of(members.begin(), members.end(), [&](const Interval* each) {
    return each->begin == exchange.begin;
  });
  for (const Interval* each : members) {
    const Nanoseconds came =
        all_at_once
            ? last_compute(sorted.compute[static_cast<std::size_t>(each->device)], exchange.begin)
            : each->begin;
    if (came > latest) late = {each->device, all_at_once ? exchange.begin : came};
    latest = std::max(latest, came);
  }
  return late;
}

Late last_to_compute(const Sorted& sorted, int device, Nanoseconds until) {
  Late late;
  for (std::size_t other = 0; other < sorted.compute.size(); ++other) {
    if (static_cast<int>(other) == device) continue;
    const Nanoseconds end = last_compute(sorted.compute[other], until);
    if (end > late.came) late = {static_cast<int>(other), end};
  }
  return late;
}

/// Finds the waits of one device in one step.
class Gaps {
 public:
  Gaps(const trace::Trace& trace, const Sorted& sorted, const StepMark& mark, const Peers& peers,
       std::vector<Wait>& waits)
      : trace_(trace), sorted_(sorted), mark_(mark), peers_(peers), waits_(waits) {}

  void find() {
    Nanoseconds idle_from = mark_.begin;
    const auto& compute = sorted_.compute[static_cast<std::size_t>(mark_.device)];
    auto at = std::partition_point(compute.begin(), compute.end(),
                                   [&](const Interval* i) { return i->end <= mark_.begin; });
    for (; at != compute.end() && (*at)->begin < mark_.end; ++at) {
      add(idle_from, (*at)->begin);
      idle_from = std::max(idle_from, (*at)->end);
    }
    add(idle_from, mark_.end);
  }

 private:
  void add(Nanoseconds begin, Nanoseconds end) {
    if (end - begin < std::max<Nanoseconds>(1, (mark_.end - mark_.begin) / 1000)) return;
    const Interval* exchange = last_exchange(begin, end);
    if (exchange == nullptr) return;
    const Late late = exchange->lane == Lane::kPeer ? last_peer(*exchange, begin, end)
                                                    : last_member(sorted_, *exchange);
    const Nanoseconds came = std::min(late.came, end);
    if (late.device < 0 || late.device == mark_.device || came <= begin) return;
    waits_.push_back({mark_.device, late.device, mark_.step, begin, came});
  }

  /// Returns the exchange that began last of those in flight in the gap or beginning at its end.
  const Interval* last_exchange(Nanoseconds begin, Nanoseconds end) const {
    const Interval* found = nullptr;
    visit_exchanges(end, [&](const Interval& each) {
      if (each.end > begin && (found == nullptr || each.begin > found->begin)) found = &each;
    });
    return found;
  }

  /// Visits exchanges that began by `moment`, newest first, as far as sends and receives overlap.
  template <typename Visit>
  void visit_exchanges(Nanoseconds moment, const Visit& visit) const {
    constexpr int kLook = 64;
    const auto& all = sorted_.exchanges[static_cast<std::size_t>(mark_.device)];
    auto at = std::partition_point(all.begin(), all.end(),
                                   [&](const Interval* i) { return i->begin <= moment; });
    for (int looked = 0; at != all.begin() && looked < kLook; ++looked) visit(**--at);
  }

  /// Sends and receives run side by side: the receive that ended last ended the pause.
  Late last_peer(const Interval& exchange, Nanoseconds begin, Nanoseconds end) const {
    const Interval* ended = &exchange;
    Nanoseconds latest = -1;
    visit_exchanges(end, [&](const Interval& each) {
      const bool is_in_pause = each.end > std::max(begin, latest) && each.end <= end;
      if (is_in_pause && is_receive(each)) ended = &each, latest = each.end;
    });
    const Nanoseconds until = std::min(ended->end, end);
    const int peer = peer_of(*ended);
    if (peer < 0) return last_to_compute(sorted_, mark_.device, until);
    return {peer, last_compute(sorted_.compute[static_cast<std::size_t>(peer)], until)};
  }

  bool is_receive(const Interval& exchange) const {
    return exchange.lane == Lane::kPeer &&
           trace_.names[static_cast<std::size_t>(exchange.device)][exchange.instruction.index()]
               .starts_with("motley::receive");
  }

  int peer_of(const Interval& exchange) const {
    const auto device = static_cast<std::size_t>(exchange.device);
    const std::size_t i = exchange.instruction.index();
    return device < peers_.size() && i < peers_[device].size() ? peers_[device][i] : -1;
  }

  const trace::Trace& trace_;
  const Sorted& sorted_;
  const StepMark& mark_;
  const Peers& peers_;
  std::vector<Wait>& waits_;
};

}  // namespace

std::vector<Wait> find_waits(const trace::Trace& trace, const Peers& peers) {
  const Sorted sorted = sort_intervals(trace);
  std::vector<Wait> waits;
  for (const StepMark& mark : trace.steps) Gaps(trace, sorted, mark, peers, waits).find();
  return waits;
}

std::vector<DeviceTimes> sum_times(const trace::Trace& trace, const std::vector<Wait>& waits) {
  std::vector<DeviceTimes> times(trace.devices.size());
  for (DeviceTimes& each : times) each.waiting_for.resize(trace.devices.size());
  for (const StepMark& mark : trace.steps) {
    DeviceTimes& of_device = times[static_cast<std::size_t>(mark.device)];
    ++of_device.steps;
    of_device.other += mark.end - mark.begin;
  }
  for (const StepMark& mark : trace.steps) {
    const auto lower = std::partition_point(
        trace.intervals.begin(), trace.intervals.end(), [&](const Interval& i) {
          return std::tuple(i.device, i.lane, i.begin) <
                 std::tuple(mark.device, Lane::kCompute, mark.begin);
        });
    DeviceTimes& of_device = times[static_cast<std::size_t>(mark.device)];
    for (auto at = lower; at != trace.intervals.end() && at->device == mark.device &&
                          at->lane == Lane::kCompute && at->begin < mark.end;
         ++at)
      if (at->bytes == 0) of_device.computing += std::min(at->end, mark.end) - at->begin;
  }
  for (const Wait& wait : waits) {
    DeviceTimes& of_device = times[static_cast<std::size_t>(wait.device)];
    of_device.waiting += wait.end - wait.begin;
    of_device.waiting_for[static_cast<std::size_t>(wait.late)] += wait.end - wait.begin;
  }
  for (DeviceTimes& each : times) each.other -= each.computing + each.waiting;
  return times;
}

}  // namespace motley::report
