#include "motley/control/training/correcting.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "motley/base/file.h"
#include "motley/base/statistics.h"
#include "motley/control/run_directory.h"
#include "motley/cost/measured/whole_step.h"
#include "motley/cost/profile_cost.h"
#include "motley/program/program_text.h"
#include "motley/run/measure.h"

namespace motley::control {
namespace {

std::vector<cost::OpEntry> operator_entries(const Inputs& inputs,
                                            const program::DeviceProgram& program,
                                            const std::vector<run::OpTime>& times,
                                            const cost::DeviceKey& key) {
  const auto works = cost::instruction_work(program, inputs.graph());
  std::map<std::string, cost::OperatorWork> by_key;
  for (std::size_t i = 0; i < works.size(); ++i)
    by_key.emplace(program::cost_key(program, program.instructions[i]), works[i]);
  std::vector<cost::OpEntry> entries;
  for (const run::OpTime& time : times)
    entries.push_back(
        {key, time.key, time.median, time.spread, time.samples, time.scratch, by_key.at(time.key)});
  return entries;
}

/// Returns the compute lane's busy time of a device in each traced step.
std::vector<double> step_seconds(const trace::Trace& trace, int device) {
  std::map<std::int64_t, double> by_step;
  for (const trace::Interval& interval : trace.intervals)
    if (interval.device == device && interval.lane == Lane::kCompute)
      by_step[interval.step] += static_cast<double>(interval.end - interval.begin) * 1e-9;
  std::vector<double> seconds;
  for (const auto& [step, value] : by_step) seconds.push_back(value);
  return seconds;
}

cost::OpEntry pace_entry(const std::string& subject, const program::DeviceProgram& program,
                         const std::vector<double>& steps, const cost::DeviceKey& key) {
  const Scatter scatter = find_scatter(steps);
  cost::OpEntry entry = cost::step_entry(key, subject, program.samples);
  entry.median = Seconds(scatter.middle);
  entry.spread = scatter.spread();
  entry.samples = static_cast<std::int64_t>(steps.size());
  return entry;
}

Result<std::vector<cost::OpEntry>> entries_of_rank(const Inputs& inputs,
                                                   const program::Program& program,
                                                   const trace::Trace& trace, std::size_t rank,
                                                   const std::string& torch) {
  const program::DeviceProgram& device = program.devices[rank];
  MOTLEY_ASSIGN(const DeviceId id, cluster::find_device(inputs.cluster, device.device));
  if (cost::has_pace(inputs.cluster, id))
    return std::vector{pace_entry(profile_subject(inputs), device,
                                  step_seconds(trace, static_cast<int>(rank)),
                                  cost::emulated_key(inputs.cluster, id, torch))};
  const cost::DeviceKey key = program.devices.size() > 1
                                  ? cost::shared_key(inputs.cluster, id, torch)
                                  : cost::device_key(inputs.cluster.device(id), torch);
  return operator_entries(inputs, device,
                          run::time_operators(device, trace, static_cast<int>(rank)), key);
}

}  // namespace

Result<KeptTimes> correct_from_run(const std::string& run_dir, const std::string& torch,
                                   const Inputs& inputs, cost::ProfileStore& store) {
  const RunDirectory directory{run_dir};
  Inputs of_run = inputs;
  MOTLEY_RETURN_IF_ERROR(read_plan(directory.plan(), of_run));
  MOTLEY_ASSIGN(const std::string text, read_file(directory.program()));
  MOTLEY_ASSIGN(const program::Program program, program::parse_program(text, directory.program()));
  MOTLEY_ASSIGN(const trace::Trace trace, read_measured_trace(directory, program.devices.size()));
  std::vector<cost::OpEntry> entries;
  for (std::size_t rank = 0; rank < program.devices.size(); ++rank) {
    if (step_seconds(trace, static_cast<int>(rank)).empty())
      return usage_error(
          "profile.from-run",
          fmt::format("{}: holds no step; run with --trace-steps N", directory.measured(rank)));
    MOTLEY_ASSIGN(const auto of_rank,
                  entries_of_rank(of_run, program, trace, rank, engine_version(of_run, torch)));
    entries.insert(entries.end(), of_rank.begin(), of_rank.end());
  }
  MOTLEY_RETURN_IF_ERROR(store.put(entries));
  std::vector<double> spreads;
  for (const cost::OpEntry& entry : entries) spreads.push_back(entry.spread);
  return KeptTimes{static_cast<std::int64_t>(entries.size()), upper_median(std::move(spreads))};
}

Result<void> remember(const Inputs& inputs, const Predicted& predicted, const Measured& measured,
                      cost::ProfileStore& store) {
  if (predicted.origin != cost::Origin::kMeasured || !(measured.step.value > 0)) return {};
  cost::PredictionEntry step = prediction_entry(inputs, "step");
  step.predicted = predicted.step.value;
  step.measured = measured.step.value;
  MOTLEY_RETURN_IF_ERROR(store.put(step));
  const std::vector<std::int64_t>& peaks = measured.peak_bytes;
  if (peaks.size() != predicted.devices.size() || peaks.empty()) return {};
  const auto fullest = std::max_element(peaks.begin(), peaks.end());
  if (*fullest <= 0) return {};
  cost::PredictionEntry memory = prediction_entry(inputs, "memory");
  const auto rank = static_cast<std::size_t>(fullest - peaks.begin());
  memory.predicted = static_cast<double>(predicted.devices[rank].price.memory.total.value);
  memory.measured = static_cast<double>(*fullest);
  return store.put(memory);
}

}  // namespace motley::control
