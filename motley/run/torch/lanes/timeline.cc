#include "motley/run/torch/lanes/timeline.h"

#include <algorithm>

namespace motley::run {

Timeline::Timeline(const program::DeviceProgram& program, std::int64_t steps)
    : program_(program), steps_(static_cast<std::size_t>(std::max<std::int64_t>(steps, 0))) {
  spans_.resize(steps_.size() * program.instructions.size());
  for (const program::Instruction& instruction : program.instructions) {
    std::int64_t moved = 0;
    if (instruction.lane == Lane::kPeer)
      moved = program::exchanged_bytes(program, instruction).value;
    else if (instruction.lane == Lane::kTransfer)
      program::for_each_buffer(instruction.arguments,
                               [&](BufferId id) { moved += program.buffer(id).bytes().value; });
    bytes_.push_back(moved);
  }
}

void Timeline::begin_step(std::int64_t step, std::int64_t now) {
  if (!is_on()) return;
  slot_ = spans_.data() + current_ * program_.instructions.size();
  steps_[current_] = {-1, now, now, 0};
  steps_[current_].step = step;
}

void Timeline::end_step(std::int64_t now, std::int64_t peak_bytes) {
  if (!is_on()) return;
  // Between two readings, an emulated device's clock only estimates the ends.
  for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
    slot_[i].begin = std::min(slot_[i].begin, now);
    slot_[i].end = std::min(slot_[i].end, now);
  }
  steps_[current_].end = now;
  steps_[current_].peak_bytes = peak_bytes;
  current_ = (current_ + 1) % steps_.size();
}

trace::Trace Timeline::trace() const {
  trace::Trace trace;
  trace.source = trace::Source::kMeasured;
  trace.devices = {program_.device};
  trace.names.emplace_back();
  for (const program::Instruction& instruction : program_.instructions) {
    const std::string& label = instruction.label;
    trace.names[0].push_back(instruction.full_name() + (label.empty() ? "" : " " + label));
  }
  // `current_` is the oldest of a full ring; an unused slot has step -1.
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const std::size_t at = (current_ + i) % steps_.size();
    if (steps_[at].step >= 0 && steps_[at].end > steps_[at].begin) order.push_back(at);
  }
  for (const Lane lane : {Lane::kCompute, Lane::kTransfer, Lane::kPeer})
    for (const std::size_t at : order)
      append_lane(steps_[at], spans_.data() + at * program_.instructions.size(), lane, trace);
  for (const std::size_t at : order)
    trace.steps.push_back(
        {0, steps_[at].step, steps_[at].begin, steps_[at].end, steps_[at].peak_bytes});
  return trace;
}

void Timeline::append_lane(const Step& step, const Span* spans, Lane lane,
                           trace::Trace& trace) const {
  const auto first = static_cast<std::ptrdiff_t>(trace.intervals.size());
  for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
    if (program_.instructions[i].lane != lane) continue;
    trace.intervals.push_back({0, lane, step.step, InstructionId(static_cast<std::int64_t>(i)),
                               spans[i].begin, spans[i].end, bytes_[i]});
  }
  // Each strand is in instruction order, but the peer lane has several.
  std::stable_sort(
      trace.intervals.begin() + first, trace.intervals.end(),
      [](const trace::Interval& a, const trace::Interval& b) { return a.begin < b.begin; });
}

}  // namespace motley::run
