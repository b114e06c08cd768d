#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <vector>

#include "motley/base/json.h"
#include "motley/report/report.h"

namespace motley::report {
namespace {

constexpr int kFirstPeerThread = 2;

/// Assigns intervals to threads, one thread per lane. Slices of a thread must not overlap, so the
/// peer lane gets one thread for each interval in flight; an interval takes the first free one.
class Threads {
 public:
  /// Call it with a device's intervals in order.
  int thread_of(const trace::Interval& interval) {
    if (interval.lane != Lane::kPeer) return static_cast<int>(interval.lane);
    std::size_t free = 0;
    while (free < busy_until_.size() && busy_until_[free] > interval.begin) ++free;
    if (free == busy_until_.size()) busy_until_.push_back(0);
    busy_until_[free] = interval.end;
    return kFirstPeerThread + static_cast<int>(free);
  }
  std::size_t peer_threads() const { return busy_until_.size(); }

 private:
  std::vector<trace::Nanoseconds> busy_until_;  // by thread of the peer lane
};

// Converts to the format's unit; fractions keep the nanoseconds.
double microseconds(trace::Nanoseconds time) { return static_cast<double>(time) / 1e3; }

Json metadata(const char* kind, int pid, int tid, const std::string& name) {
  return {{"name", kind}, {"ph", "M"}, {"pid", pid}, {"tid", tid}, {"args", {{"name", name}}}};
}

std::string name_of(const trace::Trace& trace, const trace::Interval& interval) {
  const auto& names = trace.names[static_cast<std::size_t>(interval.device)];
  return interval.instruction.index() < names.size()
             ? names[interval.instruction.index()]
             : fmt::format("^{}", interval.instruction.value);
}

Json slice(const trace::Trace& trace, const trace::Interval& interval, int thread) {
  return {{"name", name_of(trace, interval)},
          {"ph", "X"},
          {"pid", interval.device},
          {"tid", thread},
          {"ts", microseconds(interval.begin)},
          {"dur", microseconds(interval.end - interval.begin)},
          {"args",
           {{"step", interval.step},
            {"instruction", interval.instruction.value},
            {"bytes", interval.bytes}}}};
}

}  // namespace

std::string print_chrome_trace(const trace::Trace& trace) {
  const std::string source = trace.source == trace::Source::kPredicted ? "predicted" : "measured";
  // Printed event by event: a tree of all events would take many times the trace's memory.
  std::string text = "{\"traceEvents\": [\n";
  bool first = true;
  auto add = [&](const Json& event) {
    text += first ? "" : ",\n";
    text += event.dump();
    first = false;
  };
  for (std::size_t device = 0; device < trace.devices.size(); ++device) {
    const int pid = static_cast<int>(device);
    add(metadata("process_name", pid, 0, trace.devices[device] + " (" + source + ")"));
    for (const Lane lane : {Lane::kCompute, Lane::kTransfer})
      add(metadata("thread_name", pid, static_cast<int>(lane), std::string(lane_name(lane))));
  }
  std::vector<Threads> threads(trace.devices.size());
  for (const trace::Interval& interval : trace.intervals)
    add(slice(trace, interval,
              threads[static_cast<std::size_t>(interval.device)].thread_of(interval)));
  for (std::size_t device = 0; device < trace.devices.size(); ++device)
    for (std::size_t i = 0; i < threads[device].peer_threads(); ++i)
      add(metadata("thread_name", static_cast<int>(device), kFirstPeerThread + static_cast<int>(i),
                   i == 0 ? "peer" : fmt::format("peer {}", i + 1)));
  for (const trace::StepMark& mark : trace.steps) {
    add({{"name", "peak memory"},
         {"ph", "C"},
         {"pid", mark.device},
         {"ts", microseconds(mark.begin)},
         {"args", {{"bytes", mark.peak_bytes}}}});
  }
  return text + "\n], \"displayTimeUnit\": \"ms\"}\n";
}

}  // namespace motley::report
