#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/ids.h"
#include "motley/base/lane.h"
#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/trace/names.h"

namespace motley::trace {

enum class Source { kPredicted, kMeasured };
/// Simulated or measured time in integer nanoseconds from the start of the trace.
using Nanoseconds = std::int64_t;

/// A lane of a device busy with one instruction. Intervals of the peer lane may overlap.
struct Interval {
  int device = 0;  ///< position in Trace::devices
  Lane lane = Lane::kCompute;
  std::int64_t step = 0;
  InstructionId instruction;
  Nanoseconds begin = 0, end = 0;
  std::int64_t bytes = 0;  ///< moved, for transfers
  bool operator==(const Interval&) const = default;
};

struct StepMark {
  int device = 0;
  std::int64_t step = 0;
  Nanoseconds begin = 0, end = 0;
  std::int64_t peak_bytes = 0;
  bool operator==(const StepMark&) const = default;
};

/// What happened or would happen. `names[d][i]` names instruction i of device d for people.
struct Trace {
  Source source = Source::kPredicted;
  std::vector<std::string> devices;
  std::vector<Names> names;
  std::vector<Interval> intervals;  ///< ordered by device, lane, begin
  std::vector<StepMark> steps;      ///< ordered by device, step
  bool operator==(const Trace&) const = default;
};

/// Prints and parses the text form (docs/formats/trace.md), one interval per line. Parsing
/// verifies. parse_trace(print_trace(t)) == t. Errors "NAME:LINE: ..." (usage, trace.parse or
/// trace.verify).
std::string print_trace(const Trace& trace);
Result<Trace> parse_trace(std::string_view text, const std::string& name);

/// Verifies that intervals and marks are ordered as above, none ends before it begins, those of the
/// compute or transfer lane do not overlap, devices and instructions exist. First violation.
Result<void> verify_trace(const Trace& trace, const std::string& name);

/// Measures of a verified trace with marks and intervals of the same steps. Linear; 0 if no steps.
Seconds median_step(const Trace& trace);  ///< median over steps of the slowest device's time
std::vector<double> busy_share(const Trace& trace);  ///< compute time / step time, per device
/// Mean over devices of the time per step in which they exchange and do not compute.
Seconds exposed_communication(const Trace& trace);

/// Where the steps of one device went. Each moment of its step marks is in exactly one part, so the
/// parts sum to the marks to the nanosecond. An interval is an exchange if it is in the transfer
/// lane or the peer lane, or moves bytes.
///
/// Example: a step of 100: compute 0..40, a sum 60..80 for which a slower device was late, compute
/// 70..90. Compute 40 + 20, exposed 10 (60..70), waiting 20 (40..60), bubble 10 (90..100).
struct Breakdown {
  std::int64_t steps = 0;
  Nanoseconds compute = 0;                ///< the device computes
  Nanoseconds exposed_communication = 0;  ///< it exchanges and does not compute
  Nanoseconds waiting = 0;                ///< neither, and a collective is next: others are late
  /// Neither, otherwise: before a send or receive, before compute, or at the end of the step.
  Nanoseconds bubble = 0;
  bool operator==(const Breakdown&) const = default;

  Nanoseconds total() const { return compute + exposed_communication + waiting + bubble; }
};
std::vector<Breakdown> break_down(const Trace& trace);  ///< per device

}  // namespace motley::trace
