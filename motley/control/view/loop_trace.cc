#include "motley/control/view/loop_trace.h"

#include <algorithm>
#include <cmath>

namespace motley::control {
namespace {

constexpr std::size_t kMostSteps = 50;

trace::Nanoseconds in_nanoseconds(double seconds) {
  return static_cast<trace::Nanoseconds>(std::llround(seconds * 1e9));
}

}  // namespace

trace::Trace trace_loop(const Log& log, const std::vector<std::string>& devices) {
  std::vector<std::int64_t> known;
  for (auto at = log.steps.rbegin(); at != log.steps.rend() && known.size() < kMostSteps; ++at)
    if (at->second.compute_s.size() == devices.size()) known.push_back(at->first);
  std::reverse(known.begin(), known.end());
  trace::Trace trace;
  trace.source = trace::Source::kMeasured;
  trace.devices = devices;
  trace.names.assign(devices.size(), {"work of the loop", "exchange of gradients"});
  for (std::size_t device = 0; device < devices.size(); ++device) {
    const int d = static_cast<int>(device);
    std::vector<trace::Interval> exchanges;
    trace::Nanoseconds begin = 0;
    for (const std::int64_t step : known) {
      const LoggedStep& logged = log.steps.at(step);
      const double longest = *std::max_element(logged.compute_s.begin(), logged.compute_s.end());
      const trace::Nanoseconds end = begin + in_nanoseconds(std::max(logged.step_s, longest));
      const trace::Nanoseconds done = begin + in_nanoseconds(logged.compute_s[device]);
      trace.intervals.push_back({d, Lane::kCompute, step, InstructionId(0), begin, done});
      exchanges.push_back({d, Lane::kTransfer, step, InstructionId(1), done, end, 1});
      const bool has_peak = device < logged.peak_bytes.size();
      trace.steps.push_back({d, step, begin, end, has_peak ? logged.peak_bytes[device] : 0});
      begin = end;
    }
    trace.intervals.insert(trace.intervals.end(), exchanges.begin(), exchanges.end());
  }
  return trace;
}

}  // namespace motley::control
