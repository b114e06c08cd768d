#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "motley/base/file.h"
#include "motley/cli/planning.h"
#include "motley/cli/prediction.h"
#include "motley/cli/run_directory.h"
#include "motley/cost/profile_cost.h"
#include "motley/cost/readings.h"
#include "motley/program/program_text.h"

namespace motley::cli {
namespace {

/// Median and median absolute deviation over the median.
cost::Reading summarise(std::vector<double> values) {
  const auto median_of = [](std::vector<double>& list) {
    const auto middle = list.begin() + static_cast<std::ptrdiff_t>(list.size() / 2);
    std::nth_element(list.begin(), middle, list.end());
    return *middle;
  };
  cost::Reading reading{median_of(values), 0, static_cast<std::int64_t>(values.size())};
  for (double& value : values) value = std::abs(value - reading.seconds);
  reading.spread = reading.seconds > 0 ? median_of(values) / reading.seconds : 0;
  return reading;
}

/// What one device's compute lane took, in every traced step: by instruction, and in all.
struct DeviceSeconds {
  std::map<std::int32_t, std::vector<double>> by_instruction;
  std::map<std::int64_t, double> by_step;
};

std::vector<DeviceSeconds> compute_seconds(const trace::Trace& trace) {
  std::vector<DeviceSeconds> devices(trace.devices.size());
  for (const trace::Interval& interval : trace.intervals) {
    if (interval.lane != trace::Lane::kCompute) continue;
    DeviceSeconds& device = devices[static_cast<std::size_t>(interval.device)];
    const double seconds = static_cast<double>(interval.end - interval.begin) * 1e-9;
    device.by_instruction[interval.instruction.value].push_back(seconds);
    device.by_step[interval.step] += seconds;
  }
  return devices;
}

/// One round of each operator; those of equal key give the mean of theirs, as `profile` does.
std::vector<cost::OpEntry> operator_entries(const Inputs& inputs,
                                            const program::DeviceProgram& program,
                                            const DeviceSeconds& seconds,
                                            const cost::DeviceKey& key) {
  struct Sum {
    cost::Reading reading;
    double count = 0;
    cost::OperatorWork work;
  };
  const auto works = cost::instruction_work(program, inputs.model.graph);
  std::map<std::string, Sum> sums;
  for (const auto& [id, values] : seconds.by_instruction) {
    const auto index = static_cast<std::size_t>(id);
    Sum& sum = sums[program::cost_key(program, program.instructions[index])];
    const cost::Reading one = summarise(values);
    sum.reading.seconds += one.seconds;
    sum.reading.spread = std::max(sum.reading.spread, one.spread);
    sum.reading.samples = one.samples;
    sum.work = works[index];
    ++sum.count;
  }
  std::vector<cost::OpEntry> entries;
  for (const auto& [name, sum] : sums)
    entries.push_back({key, name, Seconds(sum.reading.seconds / sum.count), sum.reading.spread,
                       sum.reading.samples, Bytes(0), sum.work});
  return entries;
}

cost::OpEntry pace_entry(const std::string& subject, const program::DeviceProgram& program,
                         const DeviceSeconds& seconds, const cost::DeviceKey& key) {
  std::vector<double> steps;
  for (const auto& [step, value] : seconds.by_step) steps.push_back(value);
  const cost::Reading reading = summarise(std::move(steps));
  cost::OpEntry entry = cost::step_entry(key, subject, program.samples);
  entry.median = Seconds(reading.seconds);
  entry.spread = reading.spread;
  entry.samples = reading.samples;
  return entry;
}

}  // namespace

Result<MeasureSummary> correct_from_run(const std::string& run_dir, const std::string& torch,
                                        const Inputs& inputs, cost::ProfileStore& store) {
  const RunDirectory directory{run_dir};
  MOTLEY_ASSIGN(const plan::Plan plan, read_plan(directory.plan(), inputs));
  const std::string subject = search::profile_subject(
      inputs.model.hash, {plan.optimizer, plan.batch_norm, plan.bucket_bytes});
  MOTLEY_ASSIGN(const std::string text, read_file(directory.program()));
  MOTLEY_ASSIGN(const program::Program program, program::parse_program(text, directory.program()));
  MOTLEY_ASSIGN(const trace::Trace trace, read_measured_trace(directory, program.devices.size()));
  const std::vector<DeviceSeconds> seconds = compute_seconds(trace);
  std::vector<cost::OpEntry> entries;
  for (std::size_t rank = 0; rank < program.devices.size(); ++rank) {
    const program::DeviceProgram& device = program.devices[rank];
    MOTLEY_ASSIGN(const DeviceId id, cluster::find_device(inputs.cluster, device.device));
    if (seconds[rank].by_step.empty())
      return usage_error(
          "profile.from-run",
          fmt::format("{}: holds no step; run with --trace-steps N", directory.measured(rank)));
    if (cost::has_pace(inputs.cluster, id)) {
      entries.push_back(pace_entry(subject, device, seconds[rank],
                                   cost::emulated_key(inputs.cluster, id, torch)));
      continue;
    }
    const bool is_shared = program.devices.size() > 1;
    const cost::DeviceKey key = is_shared ? cost::shared_key(inputs.cluster, id, torch)
                                          : cost::device_key(inputs.cluster.device(id), torch);
    const auto measured = operator_entries(inputs, device, seconds[rank], key);
    entries.insert(entries.end(), measured.begin(), measured.end());
  }
  MOTLEY_RETURN_IF_ERROR(store.put(entries));
  std::vector<double> spreads;
  for (const cost::OpEntry& entry : entries) spreads.push_back(entry.spread);
  return MeasureSummary{static_cast<std::int64_t>(entries.size()),
                        summarise(std::move(spreads)).seconds};
}

}  // namespace motley::cli
