#include "motley/control/run_waits.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace motley::control {
namespace {

/// A group, or sender and receiver, and the index of their exchange in the step.
using Meeting = std::tuple<int, int, int, int>;

bool is_of(const program::Program& program, const trace::Trace& trace) {
  if (program.devices.size() != trace.names.size()) return false;
  for (std::size_t rank = 0; rank < trace.names.size(); ++rank) {
    const auto& instructions = program.devices[rank].instructions;
    if (instructions.size() != trace.names[rank].size()) return false;
    for (std::size_t i = 0; i < instructions.size(); ++i)
      if (!trace.names[rank][i].starts_with(instructions[i].full_name())) return false;
  }
  return true;
}

std::map<std::size_t, Meeting> find_meetings(const program::DeviceProgram& program, int rank) {
  std::map<std::tuple<int, int, int>, int> met;
  std::map<std::size_t, Meeting> meetings;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const program::Instruction& instruction = program.instructions[i];
    if (!program::is_exchange(instruction)) continue;
    std::tuple<int, int, int> who(instruction.group.value, -1, -1);
    if (const int peer = program::peer_of(instruction).value; peer >= 0)
      who = instruction.op == program::kSend ? std::tuple(-1, rank, peer)
                                             : std::tuple(-1, peer, rank);
    meetings[i] = std::tuple_cat(who, std::tuple(met[who]++));
  }
  return meetings;
}

}  // namespace

void leave_out_waits(const program::Program& program, trace::Trace& trace) {
  if (!is_of(program, trace)) return;
  std::vector<std::map<std::size_t, Meeting>> meetings;
  for (std::size_t rank = 0; rank < program.devices.size(); ++rank)
    meetings.push_back(find_meetings(program.devices[rank], static_cast<int>(rank)));
  std::map<std::pair<std::int64_t, Meeting>, std::vector<trace::Interval*>> together;
  for (trace::Interval& interval : trace.intervals) {
    const auto& of_rank = meetings[static_cast<std::size_t>(interval.device)];
    const auto found = of_rank.find(interval.instruction.index());
    if (found != of_rank.end()) together[{interval.step, found->second}].push_back(&interval);
  }
  for (const auto& [when, intervals] : together) {
    trace::Nanoseconds last = 0;
    for (const trace::Interval* each : intervals) last = std::max(last, each->begin);
    // Two machines' clocks do not agree exactly, so keep each interval's begin before its end.
    for (trace::Interval* each : intervals)
      each->begin = std::min(each->end, std::max(each->begin, last));
  }
  std::stable_sort(trace.intervals.begin(), trace.intervals.end(),
                   [](const trace::Interval& a, const trace::Interval& b) {
                     return std::tuple(a.device, a.lane, a.begin) <
                            std::tuple(b.device, b.lane, b.begin);
                   });
}

}  // namespace motley::control
