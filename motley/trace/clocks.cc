#include "motley/trace/clocks.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

namespace motley::trace {
namespace {

/// Ends and names of a step's collectives; the two ends of a message are at different times.
struct Exchanges {
  std::vector<std::string> names;
  std::vector<Nanoseconds> ends;
};

/// By step.
using ExchangesOfDevice = std::map<std::int64_t, Exchanges>;

std::vector<ExchangesOfDevice> exchanges_by_device(const Trace& trace) {
  std::vector<ExchangesOfDevice> found(trace.devices.size());
  for (const Interval& interval : trace.intervals) {
    if (interval.lane != Lane::kTransfer) continue;
    const auto device = static_cast<std::size_t>(interval.device);
    const std::string& name = trace.names[device][interval.instruction.index()];
    if (name.starts_with("motley::send") || name.starts_with("motley::receive")) continue;
    Exchanges& of_step = found[device][interval.step];
    of_step.names.push_back(name);
    of_step.ends.push_back(interval.end);
  }
  return found;
}

std::vector<Nanoseconds> differences(const ExchangesOfDevice& here,
                                     const ExchangesOfDevice& there) {
  std::vector<Nanoseconds> found;
  for (const auto& [step, own] : here) {
    const auto other = there.find(step);
    if (other == there.end() || other->second.names != own.names) continue;
    for (std::size_t i = 0; i < own.ends.size(); ++i)
      found.push_back(other->second.ends[i] - own.ends[i]);
  }
  return found;
}

/// Returns the differences between the ends of a device's steps and those of the first device.
std::vector<Nanoseconds> step_differences(const Trace& trace, int device) {
  std::vector<Nanoseconds> found;
  std::map<std::int64_t, Nanoseconds> ends;
  for (const StepMark& mark : trace.steps)
    if (mark.device == 0) ends[mark.step] = mark.end;
  for (const StepMark& mark : trace.steps)
    if (mark.device == device && ends.contains(mark.step))
      found.push_back(mark.end - ends[mark.step]);
  return found;
}

Nanoseconds upper_middle(std::vector<Nanoseconds> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

void align_clocks(Trace& trace, const std::vector<std::string>& clocks) {
  const std::vector<ExchangesOfDevice> exchanges = exchanges_by_device(trace);
  std::map<std::string, Nanoseconds> offsets;
  std::vector<Nanoseconds> offset_of;
  for (std::size_t device = 0; device < trace.devices.size(); ++device) {
    const auto [known, is_new] = offsets.emplace(clocks[device], 0);
    if (is_new && device > 0) {
      auto found = differences(exchanges[0], exchanges[device]);
      if (found.empty()) found = step_differences(trace, static_cast<int>(device));
      known->second = upper_middle(std::move(found));
    }
    offset_of.push_back(known->second);
  }
  Nanoseconds begin = std::numeric_limits<Nanoseconds>::max();
  const auto visit = [&](const auto& change) {
    for (Interval& each : trace.intervals) change(each);
    for (StepMark& each : trace.steps) change(each);
  };
  visit([&](auto& each) {
    each.begin -= offset_of[static_cast<std::size_t>(each.device)];
    each.end -= offset_of[static_cast<std::size_t>(each.device)];
    begin = std::min(begin, each.begin);
  });
  visit([&](auto& each) {
    each.begin -= begin;
    each.end -= begin;
  });
}

}  // namespace motley::trace
