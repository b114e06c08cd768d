#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "motley/trace/trace.h"

namespace motley::trace {
namespace {

Seconds to_seconds(double nanoseconds) { return Seconds(nanoseconds / 1e9); }

struct StepTimes {
  Nanoseconds total = 0;
  std::int64_t count = 0;
};

std::vector<StepTimes> step_times(const Trace& trace) {
  std::vector<StepTimes> times(trace.devices.size());
  for (const StepMark& mark : trace.steps) {
    StepTimes& of_device = times[static_cast<std::size_t>(mark.device)];
    of_device.total += mark.end - mark.begin;
    ++of_device.count;
  }
  return times;
}

/// Intervals of one lane of one device, which are consecutive in a trace.
using Run = std::pair<std::vector<Interval>::const_iterator, std::vector<Interval>::const_iterator>;

Run lane_intervals(const Trace& trace, std::size_t device, Lane lane) {
  const std::pair<int, Lane> key(static_cast<int>(device), lane);
  const auto place = [](const Interval& i) { return std::pair<int, Lane>(i.device, i.lane); };
  const auto begin = std::partition_point(trace.intervals.begin(), trace.intervals.end(),
                                          [&](const Interval& i) { return place(i) < key; });
  return {begin, std::partition_point(begin, trace.intervals.end(),
                                      [&](const Interval& i) { return place(i) == key; })};
}

Nanoseconds total_time(const Run& run) {
  Nanoseconds total = 0;
  for (auto at = run.first; at != run.second; ++at) total += at->end - at->begin;
  return total;
}

/// Merges a device's overlapping exchanges of any lane into one, with the step of the first.
std::vector<Interval> merge_exchanges(const Trace& trace, std::size_t device) {
  const Run transfer = lane_intervals(trace, device, Lane::kTransfer);
  const Run peer = lane_intervals(trace, device, Lane::kPeer);
  std::vector<Interval> all;
  std::merge(transfer.first, transfer.second, peer.first, peer.second, std::back_inserter(all),
             [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  std::vector<Interval> merged;
  for (const Interval& each : all) {
    if (!merged.empty() && each.begin < merged.back().end)
      merged.back().end = std::max(merged.back().end, each.end);
    else
      merged.push_back(each);
  }
  return merged;
}

/// Returns the time in which intervals of both ordered, non-overlapping runs are open.
Nanoseconds shared_time(Run a, Run b) {
  Nanoseconds total = 0;
  while (a.first != a.second && b.first != b.second) {
    const Nanoseconds begin = std::max(a.first->begin, b.first->begin);
    const Nanoseconds end = std::min(a.first->end, b.first->end);
    total += std::max<Nanoseconds>(0, end - begin);
    (a.first->end < b.first->end ? a.first : b.first)++;
  }
  return total;
}

bool is_exchange(const Interval& interval) {
  return interval.lane != Lane::kCompute || interval.bytes > 0;
}

/// Walks through the steps of one device, from one change of a lane to the next.
class Sweep {
 public:
  Sweep(const Trace& trace, std::size_t device)
      : names_(trace.names[device]),
        exchanges_(merge_exchanges(trace, device)),
        lanes_{lane_intervals(trace, device, Lane::kCompute),
               {exchanges_.begin(), exchanges_.end()}} {}

  void add(const StepMark& mark, Breakdown& parts) {
    ++parts.steps;
    for (Nanoseconds now = mark.begin; now < mark.end;) {
      bool computes = false, exchanges = false;
      Nanoseconds next = mark.end;
      for (Run& lane : lanes_) {
        while (lane.first != lane.second && lane.first->end <= now) ++lane.first;
        if (lane.first == lane.second) continue;
        const bool is_open = lane.first->begin <= now;
        next = std::min(next, is_open ? lane.first->end : lane.first->begin);
        if (is_open) (is_exchange(*lane.first) ? exchanges : computes) = true;
      }
      Nanoseconds& idle = meets_others(next, mark.step) ? parts.waiting : parts.bubble;
      (computes ? parts.compute : exchanges ? parts.exposed_communication : idle) += next - now;
      now = next;
    }
  }

 private:
  /// Returns whether a collective of this step begins at `time`.
  bool meets_others(Nanoseconds time, std::int64_t step) const {
    for (const Run& lane : lanes_) {
      if (lane.first == lane.second || lane.first->begin != time || lane.first->step != step)
        continue;
      const std::string& name = names_[lane.first->instruction.index()];
      const bool is_between_two =
          name.starts_with("motley::send") || name.starts_with("motley::receive");
      if (is_exchange(*lane.first) && !is_between_two) return true;
    }
    return false;
  }

  const Names& names_;
  const std::vector<Interval> exchanges_;
  std::array<Run, 2> lanes_;  // intervals that have not ended: compute, exchanges
};

}  // namespace

std::vector<Breakdown> break_down(const Trace& trace) {
  std::vector<Breakdown> parts(trace.devices.size());
  std::vector<Sweep> sweeps;
  sweeps.reserve(parts.size());  // pointers into them stay valid
  for (std::size_t device = 0; device < parts.size(); ++device) sweeps.emplace_back(trace, device);
  for (const StepMark& mark : trace.steps) {
    const auto device = static_cast<std::size_t>(mark.device);
    sweeps[device].add(mark, parts[device]);
  }
  return parts;
}

Seconds median_step(const Trace& trace) {
  std::map<std::int64_t, Nanoseconds> slowest;
  for (const StepMark& mark : trace.steps) {
    Nanoseconds& time = slowest[mark.step];
    time = std::max(time, mark.end - mark.begin);
  }
  if (slowest.empty()) return {};
  std::vector<Nanoseconds> times;
  for (const auto& [step, time] : slowest) times.push_back(time);
  std::sort(times.begin(), times.end());
  const std::size_t upper = times.size() / 2, lower = (times.size() - 1) / 2;
  return to_seconds((static_cast<double>(times[lower]) + static_cast<double>(times[upper])) / 2);
}

std::vector<double> busy_share(const Trace& trace) {
  const std::vector<StepTimes> steps = step_times(trace);
  std::vector<double> shares(trace.devices.size(), 0);
  for (std::size_t device = 0; device < shares.size(); ++device)
    if (steps[device].total > 0)
      shares[device] =
          static_cast<double>(total_time(lane_intervals(trace, device, Lane::kCompute))) /
          static_cast<double>(steps[device].total);
  return shares;
}

Seconds exposed_communication(const Trace& trace) {
  const std::vector<StepTimes> steps = step_times(trace);
  double sum = 0;
  for (std::size_t device = 0; device < steps.size(); ++device) {
    if (steps[device].count == 0) continue;
    const Run compute = lane_intervals(trace, device, Lane::kCompute);
    const std::vector<Interval> merged = merge_exchanges(trace, device);
    const Run exchanges(merged.begin(), merged.end());
    sum += static_cast<double>(total_time(exchanges) - shared_time(compute, exchanges)) /
           static_cast<double>(steps[device].count);
  }
  return steps.empty() ? Seconds() : to_seconds(sum / static_cast<double>(steps.size()));
}

}  // namespace motley::trace
