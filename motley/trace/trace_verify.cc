#include <fmt/format.h>

#include <tuple>

#include "motley/base/text.h"
#include "motley/trace/trace.h"

namespace motley::trace {
namespace {

/// Longest time a trace may hold (about 36 years), so that sums of differences fit 64 bits.
constexpr Nanoseconds kMostTime = Nanoseconds{1} << 60;

class Verifier {
 public:
  Verifier(const Trace& trace, const std::string& name) : trace_(trace), name_(name) {}

  Result<void> run() {
    if (trace_.names.size() != trace_.devices.size())
      found_.push_back(fmt::format("{}: found names of {} devices, wanted {}", name_,
                                   trace_.names.size(), trace_.devices.size()));
    // Stops at the first fault: each check compares with the entry before, which must be sound.
    for (std::size_t i = 0; i < trace_.intervals.size() && found_.empty(); ++i) check_interval(i);
    for (std::size_t i = 0; i < trace_.steps.size() && found_.empty(); ++i) check_step(i);
    if (found_.empty()) return {};
    return usage_error("trace.verify", join(found_, "\n"));
  }

 private:
  bool is_device(int device) const {
    return device >= 0 && static_cast<std::size_t>(device) < trace_.devices.size();
  }

  void report(const std::string& place, const std::string& text) {
    found_.push_back(fmt::format("{}: {}: {}", name_, place, text));
  }

  bool check_times(const std::string& place, int device, Nanoseconds begin, Nanoseconds end) {
    if (!is_device(device)) {
      report(place, fmt::format("device {} does not exist", device));
    } else if (end < begin) {
      report(place, fmt::format("ends at {} before it begins at {}", end, begin));
    } else if (begin < 0 || end > kMostTime) {
      report(place, fmt::format("found times from {} to {}, wanted them within 0 and {}", begin,
                                end, kMostTime));
    }
    return found_.empty();
  }

  void check_interval(std::size_t i) {
    const Interval& now = trace_.intervals[i];
    const std::string place =
        is_device(now.device)
            ? fmt::format("{} {} {} ^{}", trace_.devices[static_cast<std::size_t>(now.device)],
                          lane_name(now.lane), now.step, now.instruction.value)
            : fmt::format("interval {}", i);
    // Each instruction needs a name: reports would otherwise fail on a verified trace.
    if (!check_times(place, now.device, now.begin, now.end)) return;
    const auto& names = trace_.names[static_cast<std::size_t>(now.device)];
    if (now.instruction.is_none() || now.instruction.index() >= names.size())
      return report(place, fmt::format("has no name among the {} of its device", names.size()));
    if (now.bytes < 0) return report(place, fmt::format("found {} bytes", now.bytes));
    if (i == 0) return;
    const Interval& before = trace_.intervals[i - 1];
    const bool same_lane = before.device == now.device && before.lane == now.lane;
    // Measures rely on the order: they walk a device's lanes without sorting or searching.
    if (std::tie(now.device, now.lane) < std::tie(before.device, before.lane)) {
      report(place, "comes after one of a later device or lane");
    } else if (same_lane && now.lane == Lane::kPeer) {
      if (now.begin < before.begin)
        report(place, fmt::format("begins at {}, before ^{} at {}", now.begin,
                                  before.instruction.value, before.begin));
    } else if (same_lane && now.begin < before.end) {
      report(place, fmt::format("begins at {} while ^{} runs until {}", now.begin,
                                before.instruction.value, before.end));
    }
  }

  void check_step(std::size_t i) {
    const StepMark& now = trace_.steps[i];
    const std::string place =
        is_device(now.device)
            ? fmt::format("{} step {}", trace_.devices[static_cast<std::size_t>(now.device)],
                          now.step)
            : fmt::format("step mark {}", i);
    if (!check_times(place, now.device, now.begin, now.end)) return;
    if (now.peak_bytes < 0) return report(place, fmt::format("found {} bytes", now.peak_bytes));
    if (i == 0) return;
    const StepMark& before = trace_.steps[i - 1];
    if (std::tie(now.device, now.step) <= std::tie(before.device, before.step)) {
      report(place, "comes after a later device or step, or twice");
    } else if (before.device == now.device && now.begin < before.end) {
      report(place, fmt::format("begins at {} while step {} runs until {}", now.begin, before.step,
                                before.end));
    }
  }

  const Trace& trace_;
  const std::string& name_;
  std::vector<std::string> found_;
};

}  // namespace

Result<void> verify_trace(const Trace& trace, const std::string& name) {
  return Verifier(trace, name).run();
}

}  // namespace motley::trace
