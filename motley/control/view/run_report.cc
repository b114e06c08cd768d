#include "motley/control/view/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "motley/base/file.h"
#include "motley/base/text.h"
#include "motley/control/view/loop_trace.h"
#include "motley/control/view/micro_batches.h"
#include "motley/control/view/report_parts.h"
#include "motley/program/program_text.h"

namespace motley::control {
namespace {

std::optional<double> summary_number(const FoundRun& run, const char* key) {
  if (!run.summary) return std::nullopt;
  const auto found = run.summary->find(key);
  return found != run.summary->end() && found->is_number() ? std::optional(found->get<double>())
                                                           : std::nullopt;
}

Seconds step_of(const FoundRun& run) {
  return Seconds(summary_number(run, "step_s_median").value_or(logged_step(run.log).value));
}

std::optional<double> predicted_step(const FoundRun& run) {
  if (run.summary) return summary_number(run, "predicted_step_s");
  if (!run.predicted) return std::nullopt;
  return trace::median_step(*run.predicted).value;
}

std::optional<program::Program> find_program(const FoundRun& run, std::vector<std::string>& notes) {
  const std::string path = run.directory.program();
  const auto text = read_file(path);
  auto program = text ? program::parse_program(*text, path) : tl::make_unexpected(text.error());
  if (program) return std::move(*program);
  notes.push_back(program.error().message);
  return std::nullopt;
}

/// Reads the run's cluster; directories of older versions have none.
std::optional<cluster::Cluster> find_cluster(const FoundRun& run, std::vector<std::string>& notes) {
  if (!std::filesystem::exists(run.directory.cluster())) {
    notes.push_back("no cluster.toml: the run is of an older version, so links are not shown");
    return std::nullopt;
  }
  auto cluster = cluster::read_cluster(run.directory.cluster());
  if (cluster) return std::move(*cluster);
  notes.push_back(cluster.error().message);
  return std::nullopt;
}

std::optional<plan::Plan> add_plan(const FoundRun& run, const cluster::Cluster& cluster,
                                   report::ReportData& report_data) {
  const auto text = read_file(run.directory.plan());
  auto plan = text ? plan::parse_plan(*text, run.directory.plan(), cluster)
                   : tl::make_unexpected(text.error());
  if (!plan) {
    report_data.remarks.push_back(plan.error().message);
    return std::nullopt;
  }
  report_data.stages = find_stages(*plan, cluster);
  for (const plan::Member& member : plan::members(*plan))
    report_data.samples.emplace_back(cluster.device(member.device).name, member.samples);
  return std::move(*plan);
}

std::int64_t steps_done(const FoundRun& run) {
  return run.log.steps.empty() ? 0 : run.log.steps.rbegin()->first + 1;
}

/// Adds the times of a script's own loop, and its final split of the batch.
void add_loop(const FoundRun& run, report::ReportData& report_data) {
  if (run.log.steps.empty()) return;
  std::vector<std::string> devices;
  for (const run::WorkerDevice& device : run.job.devices) devices.push_back(device.name);
  const std::vector<std::int64_t>& samples = run.log.steps.rbegin()->second.samples;
  for (std::size_t rank = 0; rank < std::min(devices.size(), samples.size()); ++rank)
    report_data.samples.emplace_back(devices[rank], samples[rank]);
  trace::Trace trace = trace_loop(run.log, devices);
  if (!trace.steps.empty())
    report_data.timelines.push_back({"measured", "", logged_step(run.log), std::move(trace)});
}

std::string devices_text(std::size_t devices) {
  return devices == 1 ? "1 device" : fmt::format("{} devices", devices);
}

}  // namespace

Seconds logged_step(const Log& log) {
  std::vector<double> seconds;
  for (const auto& [step, logged] : log.steps) seconds.push_back(logged.step_s);
  if (seconds.size() > 1) seconds.erase(seconds.begin());
  if (seconds.empty()) return {};
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return Seconds(*middle);
}

RunReporter::RunReporter(const FoundRun& run) : run_(run) {
  still_.title = run.directory.path;
  still_.remarks = run.notes;
  if (!run.arguments.empty())
    still_.command = (run.is_script ? "" : "motley ") + print_command(run.arguments);
  if (run.is_script) {  // its log has the rest
    for (const run::WorkerDevice& device : run.job.devices)
      still_.memory.push_back({device.name, {}, {}, {}, {}});
    return;
  }
  if (run.predicted)
    still_.timelines.push_back(
        {"predicted", "", Seconds(predicted_step(run).value_or(0)), *run.predicted});
  if (run.measured) still_.timelines.push_back({"measured", "", step_of(run), *run.measured});
  const auto cluster = find_cluster(run, still_.remarks);
  const auto plan = cluster ? add_plan(run, *cluster, still_) : std::nullopt;
  const auto program = find_program(run, still_.remarks);
  if (!program) return;
  for (const program::DeviceProgram& device : program->devices)
    still_.memory.push_back(
        {device.device, {}, {}, {}, memory_parts(program::find_memory_peak(device))});
  if (still_.timelines.empty()) return;
  for (report::Timeline& each : still_.timelines) {
    each.passes = find_passes(*program, still_.stages);
    each.peers = find_peers(*program);
  }
  // Measured exchanges include waiting, so prefer the predicted times.
  if (cluster) still_.links = find_link_loads(*program, *cluster, still_.timelines.front().trace);
  if (plan) add_stage_work(*plan, *program, still_.timelines.back().trace, still_.stages);
  still_.layers = find_layer_cuts(*program, still_.timelines.back().trace, still_.stages);
}

void RunReporter::add_memory(report::ReportData& report_data) const {
  for (report::DeviceMemory& each : report_data.memory) {
    for (std::size_t rank = 0; rank < run_.job.devices.size(); ++rank) {
      if (run_.job.devices[rank].name != each.device) continue;
      each.limit = run_.job.devices[rank].memory;
      if (run_.log.steps.empty()) continue;
      const auto& peaks = run_.log.steps.rbegin()->second.peak_bytes;
      if (rank < peaks.size()) each.measured = Bytes(peaks[rank]);
    }
    if (run_.summary && run_.summary->contains("devices"))
      for (const Json& device : run_.summary->at("devices")) {
        if (!device.is_object() || device.value("name", "") != each.device) continue;
        if (device.contains("peak_bytes"))
          each.measured = Bytes(device.value("peak_bytes", std::int64_t{0}));
        if (device.contains("predicted_peak_bytes"))
          each.predicted = Bytes(device.value("predicted_peak_bytes", std::int64_t{0}));
      }
    std::int64_t rest = each.measured ? each.measured->value : 0;
    for (const auto& [name, bytes] : each.parts) rest -= bytes.value;
    if (rest > 0)
      each.parts.emplace_back(run_.is_script ? "the process" : "scratch and rest", Bytes(rest));
  }
}

void RunReporter::add_curves(report::ReportData& report_data) const {
  report::Curve loss{"loss", "", {}, {}}, step{"step time", "s", {}, predicted_step(run_)};
  report::Curve norm{"norm of the gradients", "", {}, {}};
  for (const auto& [number, logged] : run_.log.steps) {
    if (std::isfinite(logged.loss) || !run_.is_script)
      loss.points.emplace_back(number, logged.loss);
    step.points.emplace_back(number, logged.step_s);
    if (logged.gradient_norm) norm.points.emplace_back(number, *logged.gradient_norm);
  }
  std::vector<report::Curve> metrics;
  for (const auto& [number, logged] : run_.log.evaluations) {
    auto values = logged.evaluation.metrics;
    values.emplace(values.begin(), "loss", logged.evaluation.loss);
    for (const auto& [name, value] : values) {
      const std::string title = "evaluation " + name;
      auto found = std::find_if(metrics.begin(), metrics.end(),
                                [&](const report::Curve& each) { return each.name == title; });
      if (found == metrics.end()) found = metrics.insert(found, {title, "", {}, {}});
      found->points.emplace_back(number, value);
    }
  }
  if (!loss.points.empty() || !run_.is_script) report_data.curves = {std::move(loss)};
  report_data.curves.insert(report_data.curves.end(), metrics.begin(), metrics.end());
  if (!norm.points.empty()) report_data.curves.push_back(std::move(norm));
  report_data.curves.push_back(std::move(step));
}

std::string RunReporter::verdict(const report::ReportData& report_data) const {
  const std::string devices = devices_text(run_.job.devices.size());
  const std::int64_t done = steps_done(run_);
  const Seconds step = step_of(run_);
  std::string pace = done > 0 ? fmt::format(", {} a step", format_seconds(step)) : "";
  if (const auto predicted = predicted_step(run_); predicted && *predicted > 0 && done > 0) {
    const double off = 100 * (step.value / *predicted - 1);
    pace += std::abs(off) < 0.5 ? ", as predicted"
                                : fmt::format(", {:.0f} % {} than predicted", std::abs(off),
                                              off > 0 ? "more" : "less");
  }
  const std::string of = run_.is_script ? fmt::format("{} steps", done)
                                        : fmt::format("{} of {} steps", done, run_.job.steps);
  switch (run_.state) {
    case RunState::kFinished:
      return fmt::format("Finished: {} steps on {}{}. {}", done, devices, pace,
                         report::waiting_sentence(report_data));
    case RunState::kStopped:
      return fmt::format("Stopped after {} on {}{}; {}.", of, devices, pace, run_.how);
    case RunState::kRunning: {
      const double left = static_cast<double>(std::max<std::int64_t>(0, run_.job.steps - done));
      return fmt::format(
          "Running: {} done on {}{}{}.", of, devices, pace,
          done > 0 && left > 0 ? "; about " + format_seconds(step * left) + " to go" : "");
    }
    case RunState::kFailed:
      return fmt::format("Failed after {} on {}: {}", of, devices, run_.how);
    case RunState::kEnded:
      return fmt::format("Ended after {} on {}: {}.", of, devices, run_.how);
    case RunState::kPrepared:
      break;
  }
  return "Prepared: nothing has started yet.";
}

report::ReportData RunReporter::tell() const {
  report::ReportData report_data = still_;
  report_data.state = state_name(run_.state);
  if (run_.is_script) add_loop(run_, report_data);
  add_memory(report_data);
  add_curves(report_data);
  if (!run_.has_summary()) {
    for (const RankPlace& each : run_.ranks)
      report_data.ranks.push_back({each.rank, each.device, each.is_running, each.step, each.where});
    if (run_.checkpoint)
      report_data.remarks.insert(report_data.remarks.begin(),
                                 "Latest checkpoint: " + *run_.checkpoint);
  }
  report_data.verdict = verdict(report_data);
  return report_data;
}

Json run_to_json(const FoundRun& run, const report::ReportData& report_data) {
  Json json = run.summary.value_or(Json::object());
  if (!run.summary) {
    Json losses = Json::array();
    for (const auto& [step, logged] : run.log.steps) losses.push_back(logged.loss);
    const auto predicted = predicted_step(run);
    json = {{"steps", steps_done(run)},
            {"losses", std::move(losses)},
            {"step_s_median", logged_step(run.log).value},
            {"predicted_step_s", predicted ? Json(*predicted) : Json(nullptr)},
            {"checkpoint", run.checkpoint ? Json(*run.checkpoint) : Json(nullptr)},
            {"run_dir", run.directory.path}};
  }
  json["how"] = run.how;
  const Json told = report::report_data_to_json(report_data);
  for (const auto& [key, value] : told.items()) json[key] = value;
  return json;
}

}  // namespace motley::control
