#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>

#include "motley/base/line_cursor.h"
#include "motley/base/text.h"
#include "motley/trace/trace.h"

namespace motley::trace {
namespace {

constexpr std::string_view kVersion = "motley.trace/1";

void print_device(std::string& out, const Trace& trace, std::size_t device) {
  fmt::format_to(std::back_inserter(out), "device {}\n", quote(trace.devices[device]));
  for (std::size_t i = 0; i < trace.names[device].size(); ++i)
    fmt::format_to(std::back_inserter(out), "name ^{} {}\n", i, quote(trace.names[device][i]));
}

bool parse_id(LineCursor& line, InstructionId& id) {
  std::int64_t value = 0;
  if (!line.take('^')) return line.fail("an instruction such as ^3");
  if (!line.expect_integer(value)) return false;
  // Ids are 32 bits wide: a larger number would wrap to another instruction's id.
  if (value < 0 || value > INT32_MAX) return line.fail("an instruction's id before this");
  id = InstructionId(value);
  return true;
}

/// Reads the items of a trace; those after a device's line belong to that device.
class Parser {
 public:
  bool parse_line(LineCursor& line) {
    if (!has_source_) return parse_source(line);
    if (line.take_word("device")) {
      trace_.names.emplace_back();
      return line.expect_quoted(trace_.devices.emplace_back()) && line.expect_end();
    }
    if (trace_.devices.empty()) return line.fail("'device'");
    if (line.take_word("name")) return parse_name(line);
    if (line.take_word("step")) return parse_step(line);
    for (const Lane lane : {Lane::kCompute, Lane::kTransfer, Lane::kPeer})
      if (line.take_word(lane_name(lane))) return parse_interval(line, lane);
    return line.fail("'device', 'name', 'step', 'compute', 'transfer' or 'peer'");
  }

  bool has_source() const { return has_source_; }
  Trace& trace() { return trace_; }

 private:
  int device() const { return static_cast<int>(trace_.devices.size()) - 1; }

  bool parse_source(LineCursor& line) {
    if (!line.expect_word("source")) return false;
    has_source_ = true;
    if (line.take_word("measured")) {
      trace_.source = Source::kMeasured;
    } else if (!line.take_word("predicted")) {
      return line.fail("'predicted' or 'measured'");
    }
    return line.expect_end();
  }

  bool parse_name(LineCursor& line) {
    Names& names = trace_.names.back();
    InstructionId id;
    if (!parse_id(line, id)) return false;
    // Ids are dense, so a name is found by position and a damaged file shows at its first gap.
    if (id.index() != names.size())
      return line.fail(fmt::format("^{} before this, ids being dense", names.size()));
    std::string name;
    if (!line.expect_quoted(name)) return false;
    names.push_back(std::move(name));
    return line.expect_end();
  }

  bool parse_step(LineCursor& line) {
    StepMark& mark = trace_.steps.emplace_back();
    mark.device = device();
    return line.expect_integer(mark.step) && line.expect_integer(mark.begin) &&
           line.expect_integer(mark.end) && line.expect_word("peak") &&
           line.expect_integer(mark.peak_bytes) && line.expect_end();
  }

  bool parse_interval(LineCursor& line, Lane lane) {
    Interval& interval = trace_.intervals.emplace_back();
    interval.device = device();
    interval.lane = lane;
    if (!line.expect_integer(interval.step) || !parse_id(line, interval.instruction) ||
        !line.expect_integer(interval.begin) || !line.expect_integer(interval.end))
      return false;
    if (line.take_word("bytes") && !line.expect_integer(interval.bytes)) return false;
    return line.expect_end();
  }

  bool has_source_ = false;
  Trace trace_;
};

}  // namespace

std::string print_trace(const Trace& trace) {
  std::string out = fmt::format("{}\nsource {}\n", kVersion,
                                trace.source == Source::kPredicted ? "predicted" : "measured");
  // One pass: steps and intervals are ordered by device (verify_trace).
  std::size_t step = 0, interval = 0;
  for (std::size_t device = 0; device < trace.devices.size(); ++device) {
    const int index = static_cast<int>(device);
    print_device(out, trace, device);
    for (; step < trace.steps.size() && trace.steps[step].device == index; ++step) {
      const StepMark& mark = trace.steps[step];
      fmt::format_to(std::back_inserter(out), "step {} {} {} peak {}\n", mark.step, mark.begin,
                     mark.end, mark.peak_bytes);
    }
    for (; interval < trace.intervals.size() && trace.intervals[interval].device == index;
         ++interval) {
      const Interval& busy = trace.intervals[interval];
      fmt::format_to(std::back_inserter(out), "{} {} ^{} {} {}", lane_name(busy.lane), busy.step,
                     busy.instruction.value, busy.begin, busy.end);
      if (busy.bytes != 0) fmt::format_to(std::back_inserter(out), " bytes {}", busy.bytes);
      out += '\n';
    }
  }
  return out;
}

Result<Trace> parse_trace(std::string_view text, const std::string& name) {
  Parser parser;
  MOTLEY_ASSIGN(const int last,
                parse_lines(text, name, {"trace.parse", kVersion},
                            [&](LineCursor& line, int) { return parser.parse_line(line); }));
  if (!parser.has_source())
    return usage_error("trace.parse",
                       fmt::format("{}:{}: found the end, wanted 'source'", name, last));
  MOTLEY_RETURN_IF_ERROR(verify_trace(parser.trace(), name));
  return std::move(parser.trace());
}

}  // namespace motley::trace
