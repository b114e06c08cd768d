#pragma once

#include <cstdint>
#include <vector>

#include "motley/program/program.h"
#include "motley/trace/trace.h"

namespace motley::run {

/// Instruction times of the last few steps, in preallocated memory: recording costs two stores.
/// Lanes may record at the same time, each its own instructions.
class Timeline {
 public:
  /// Keeps `steps` steps; 0: records nothing.
  Timeline(const program::DeviceProgram& program, std::int64_t steps);
  bool is_on() const { return !steps_.empty(); }
  void begin_step(std::int64_t step, std::int64_t now);
  void record(std::size_t instruction, std::int64_t begin, std::int64_t end) {
    if (is_on()) slot_[instruction] = {begin, end};
  }
  void end_step(std::int64_t now, std::int64_t peak_bytes);
  /// Returns the completed steps, oldest first.
  trace::Trace trace() const;

 private:
  struct Span {
    std::int64_t begin = 0, end = 0;
  };
  struct Step {
    std::int64_t step = -1, begin = 0, end = 0, peak_bytes = 0;
  };
  void append_lane(const Step& step, const Span* spans, Lane lane, trace::Trace& trace) const;

  const program::DeviceProgram& program_;
  std::vector<Step> steps_;  // a ring, like spans_, which holds the steps' instructions in order
  std::vector<Span> spans_;
  std::size_t current_ = 0;
  Span* slot_ = nullptr;
  std::vector<std::int64_t> bytes_;  // moved by each instruction
};

}  // namespace motley::run
