#include <fmt/format.h>

#include <map>

#include "motley/base/file.h"
#include "motley/base/statistics.h"
#include "motley/cli/planning.h"
#include "motley/cli/prediction.h"
#include "motley/cli/run_directory.h"
#include "motley/cost/measured/whole_step.h"
#include "motley/cost/profile_cost.h"
#include "motley/program/program_text.h"
#include "motley/run/measure.h"

namespace motley::cli {
namespace {

/// One round of each operator.
std::vector<cost::OpEntry> operator_entries(const Inputs& inputs,
                                            const program::DeviceProgram& program,
                                            const std::vector<run::OpTime>& times,
                                            const cost::DeviceKey& key) {
  const auto works = cost::instruction_work(program, inputs.model.graph);
  std::map<std::string, cost::OperatorWork> by_key;
  for (std::size_t i = 0; i < works.size(); ++i)
    by_key.emplace(program::cost_key(program, program.instructions[i]), works[i]);
  std::vector<cost::OpEntry> entries;
  for (const run::OpTime& time : times)
    entries.push_back(
        {key, time.key, time.median, time.spread, time.samples, time.scratch, by_key.at(time.key)});
  return entries;
}

/// What one device's compute lane took in each traced step.
std::vector<double> step_seconds(const trace::Trace& trace, int device) {
  std::map<std::int64_t, double> by_step;
  for (const trace::Interval& interval : trace.intervals)
    if (interval.device == device && interval.lane == trace::Lane::kCompute)
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
  std::vector<cost::OpEntry> entries;
  for (std::size_t rank = 0; rank < program.devices.size(); ++rank) {
    const program::DeviceProgram& device = program.devices[rank];
    MOTLEY_ASSIGN(const DeviceId id, cluster::find_device(inputs.cluster, device.device));
    const std::vector<double> steps = step_seconds(trace, static_cast<int>(rank));
    if (steps.empty())
      return usage_error(
          "profile.from-run",
          fmt::format("{}: holds no step; run with --trace-steps N", directory.measured(rank)));
    if (cost::has_pace(inputs.cluster, id)) {
      entries.push_back(
          pace_entry(subject, device, steps, cost::emulated_key(inputs.cluster, id, torch)));
      continue;
    }
    const bool is_shared = program.devices.size() > 1;
    const cost::DeviceKey key = is_shared ? cost::shared_key(inputs.cluster, id, torch)
                                          : cost::device_key(inputs.cluster.device(id), torch);
    const auto measured = operator_entries(
        inputs, device, run::time_operators(device, trace, static_cast<int>(rank)), key);
    entries.insert(entries.end(), measured.begin(), measured.end());
  }
  MOTLEY_RETURN_IF_ERROR(store.put(entries));
  std::vector<double> spreads;
  for (const cost::OpEntry& entry : entries) spreads.push_back(entry.spread);
  return MeasureSummary{static_cast<std::int64_t>(entries.size()),
                        upper_median(std::move(spreads))};
}

}  // namespace motley::cli
