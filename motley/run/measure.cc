#include "motley/run/measure.h"

#include <map>

#include "motley/base/statistics.h"
#include "motley/program/program_text.h"

namespace motley::run {
namespace {

std::map<int, std::vector<double>> durations(const trace::Trace& trace, int device) {
  std::map<int, std::vector<double>> times;
  for (const trace::Interval& interval : trace.intervals)
    if (interval.device == device && interval.lane == Lane::kCompute)
      times[interval.instruction.value].push_back(
          static_cast<double>(interval.end - interval.begin) * 1e-9);
  return times;
}

}  // namespace

std::vector<OpTime> time_operators(const program::DeviceProgram& program, const trace::Trace& trace,
                                   int device) {
  struct Sum {
    double median = 0, deviation = 0;
    std::int64_t instructions = 0, samples = 0;
  };
  std::map<std::string, Sum> by_key;
  for (const auto& [id, times] : durations(trace, device)) {
    const auto& instruction = program.instructions[static_cast<std::size_t>(id)];
    Sum& sum = by_key[program::cost_key(program, instruction)];
    const Scatter scatter = find_scatter(times);
    sum.median += scatter.middle;
    sum.deviation += scatter.deviation;
    sum.samples += static_cast<std::int64_t>(times.size());
    ++sum.instructions;
  }
  std::vector<OpTime> result;
  for (const auto& [key, sum] : by_key)
    result.push_back({key,
                      Seconds(sum.median / static_cast<double>(sum.instructions)),
                      sum.median > 0 ? sum.deviation / sum.median : 0.0,
                      sum.samples,
                      {}});
  return result;
}

Result<void> ProfileJob::check(const std::string& where) const {
  if (ranks.size() == programs.size()) return {};
  return usage_error("run.measure", where + ": wanted as many ranks as programs");
}

}  // namespace motley::run
