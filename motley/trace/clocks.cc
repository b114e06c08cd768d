#include "motley/trace/clocks.h"

#include <algorithm>
#include <limits>
#include <map>

namespace motley::trace {
namespace {

/// When exchanges of each step end, with their names; of sends and receives both ends differ.
struct Exchanges {
  std::vector<std::string> names;
  std::vector<Nanoseconds> ends;
};

std::map<std::int64_t, Exchanges> exchanges_of(const Trace& trace, int device) {
  std::map<std::int64_t, Exchanges> by_step;
  for (const Interval& interval : trace.intervals) {
    if (interval.device != device || interval.lane != Lane::kTransfer) continue;
    const Names& names = trace.names[static_cast<std::size_t>(device)];
    const std::string& name = names[interval.instruction.index()];
    if (name.starts_with("motley::send") || name.starts_with("motley::receive")) continue;
    by_step[interval.step].names.push_back(name);
    by_step[interval.step].ends.push_back(interval.end);
  }
  return by_step;
}

std::vector<Nanoseconds> differences(const Trace& trace, int device) {
  std::vector<Nanoseconds> found;
  const auto here = exchanges_of(trace, 0), there = exchanges_of(trace, device);
  for (const auto& [step, own] : here) {
    const auto other = there.find(step);
    if (other == there.end() || other->second.names != own.names) continue;
    for (std::size_t i = 0; i < own.ends.size(); ++i)
      found.push_back(other->second.ends[i] - own.ends[i]);
  }
  if (!found.empty()) return found;
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
  std::map<std::string, Nanoseconds> offsets;
  std::vector<Nanoseconds> offset_of;
  for (std::size_t device = 0; device < trace.devices.size(); ++device) {
    const auto [known, is_new] = offsets.emplace(clocks[device], 0);
    if (is_new && device > 0)
      known->second = upper_middle(differences(trace, static_cast<int>(device)));
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
