#include <fmt/format.h>

#include "motley/base/json.h"
#include "motley/report/report.h"

namespace motley::report {
namespace {

constexpr int kComputeThread = 0;
constexpr int kTransferThread = 1;

int thread_of(Lane lane) { return lane == Lane::kCompute ? kComputeThread : kTransferThread; }

// The format's unit; fractions keep the nanoseconds.
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

Json slice(const trace::Trace& trace, const trace::Interval& interval) {
  return {{"name", name_of(trace, interval)},
          {"ph", "X"},
          {"pid", interval.device},
          {"tid", thread_of(interval.lane)},
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
  // Event by event: a tree of all of them would take many times the trace's memory.
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
    add(metadata("thread_name", pid, kComputeThread, "compute"));
    add(metadata("thread_name", pid, kTransferThread, "transfer"));
  }
  for (const trace::Interval& interval : trace.intervals) add(slice(trace, interval));
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
