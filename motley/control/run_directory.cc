#include "motley/control/run_directory.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/control/run_waits.h"
#include "motley/program/program_text.h"
#include "motley/trace/clocks.h"

namespace motley::control {
namespace {

Result<void> read_step(JsonObject& object, Log& log) {
  LoggedStep logged;
  MOTLEY_ASSIGN(const std::int64_t step, object.integer("step"));
  MOTLEY_ASSIGN(const Json* loss, object.member("loss"));
  logged.loss = loss->is_number() ? loss->get<double>() : std::nan("");
  if (object.has("lr")) {
    MOTLEY_ASSIGN(logged.lr, object.number("lr"));
  }
  if (object.has("grad_norm")) {
    MOTLEY_ASSIGN(const Json* norm, object.member("grad_norm"));
    logged.gradient_norm = norm->is_number() ? norm->get<double>() : std::nan("");
  }
  MOTLEY_ASSIGN(logged.step_s, object.number("step_s"));
  if (object.has("stint")) {
    MOTLEY_ASSIGN(logged.generation, object.integer("stint"));
  }
  if (object.has("data_s")) {
    MOTLEY_ASSIGN(logged.data_s, object.number("data_s"));
    MOTLEY_ASSIGN(logged.loading_s, object.number("loading_s"));
    MOTLEY_ASSIGN(logged.loaders, object.integer("loaders"));
  }
  MOTLEY_ASSIGN(const Json* compute, object.member("compute_s"));
  MOTLEY_ASSIGN(const Json* peaks, object.member("peak_bytes"));
  if (!compute->is_array() || !peaks->is_array())
    return usage_error("cli.log", "log.jsonl: wanted lists of compute_s and peak_bytes");
  for (const Json& item : *compute)
    if (item.is_number()) logged.compute_s.push_back(item.get<double>());
  for (const Json& item : *peaks)
    if (item.is_number_integer()) logged.peak_bytes.push_back(item.get<std::int64_t>());
  if (object.has("samples")) {
    MOTLEY_ASSIGN(const Json* samples, object.member("samples"));
    for (const Json& item : *samples)
      if (item.is_number_integer()) logged.samples.push_back(item.get<std::int64_t>());
  }
  log.steps[step] = std::move(logged);
  return {};
}

Result<void> read_evaluation(JsonObject& object, Log& log) {
  LoggedEvaluation logged;
  MOTLEY_ASSIGN(const Json* evaluation, object.member("evaluation"));
  MOTLEY_ASSIGN(logged.is_best, object.boolean("is_best"));
  MOTLEY_ASSIGN(JsonObject inner, JsonObject::make(*evaluation, "log.jsonl: evaluation"));
  MOTLEY_ASSIGN(const std::int64_t step, inner.integer("step"));
  MOTLEY_ASSIGN(logged.evaluation, evaluation_from_json(inner));
  log.evaluations[step] = std::move(logged);
  return {};
}

Result<void> read_line(std::string_view line, Log& log) {
  MOTLEY_ASSIGN(const Json json, parse_json(line, "log.jsonl"));
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, "log.jsonl"));
  return object.has("evaluation") ? read_evaluation(object, log) : read_step(object, log);
}

Result<Json> read_json(const std::string& path) {
  MOTLEY_ASSIGN(const std::string text, read_file(path));
  return parse_json(text, path);
}

}  // namespace

std::string print_logged_step(std::int64_t step, const LoggedStep& logged) {
  Json json{{"step", step}, {"loss", logged.loss}, {"lr", logged.lr}};
  if (logged.gradient_norm) json["grad_norm"] = *logged.gradient_norm;  // null if not finite
  json["step_s"] = logged.step_s;
  if (logged.loading_s > 0) {
    json["data_s"] = logged.data_s;
    json["loading_s"] = logged.loading_s;
    json["loaders"] = logged.loaders;
  }
  if (logged.generation > 0) json["stint"] = logged.generation;
  if (logged.batch) json["batch"] = *logged.batch;
  if (logged.noise) {
    json["noise"] = policy::observation_to_json(*logged.noise);
    json["noise"].erase("seen");
    json["noise"].erase("step");
  }
  json["compute_s"] = logged.compute_s;
  json["peak_bytes"] = logged.peak_bytes;
  return json.dump();
}

void Log::forget_from(std::int64_t step) {
  steps.erase(steps.lower_bound(step), steps.end());
  // An evaluation comes after the step that it follows.
  evaluations.erase(evaluations.upper_bound(step), evaluations.end());
}

Json evaluation_to_json(std::int64_t step, const run::Evaluation& evaluation) {
  Json metrics = Json::object();
  for (const auto& [name, value] : evaluation.metrics) metrics[name] = value;
  return {{"step", step}, {"loss", evaluation.loss}, {"metrics", std::move(metrics)}};
}

Result<run::Evaluation> evaluation_from_json(JsonObject& object) {
  run::Evaluation evaluation;
  MOTLEY_ASSIGN(evaluation.loss, object.number("loss"));
  MOTLEY_ASSIGN(const Json* metrics, object.member("metrics"));
  for (const auto& [name, value] : metrics->items())
    if (metrics->is_object() && value.is_number())
      evaluation.metrics.emplace_back(name, value.get<double>());
  return evaluation;
}

std::string print_logged_evaluation(std::int64_t step, const LoggedEvaluation& logged) {
  return Json{{"evaluation", evaluation_to_json(step, logged.evaluation)},
              {"is_best", logged.is_best}}
      .dump();
}

Result<Log> read_log(const RunDirectory& directory) {
  Log log;
  if (!std::filesystem::exists(directory.log())) return log;
  MOTLEY_ASSIGN(const std::string text, read_file(directory.log()));
  read_log_lines(text, log);
  return log;
}

void read_log_lines(std::string_view text, Log& log) {
  for (const std::string_view line : split(text, '\n'))
    (void)read_line(line, log);  // skips a line that a killed process left incomplete
}

Result<trace::Trace> read_measured_trace(const RunDirectory& directory, std::size_t ranks) {
  trace::Trace merged;
  merged.source = trace::Source::kMeasured;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::string path = directory.measured(rank);
    MOTLEY_ASSIGN(const std::string text, read_file(path));
    MOTLEY_ASSIGN(const trace::Trace one, trace::parse_trace(text, path));
    const int offset = static_cast<int>(merged.devices.size());
    merged.devices.insert(merged.devices.end(), one.devices.begin(), one.devices.end());
    merged.names.insert(merged.names.end(), one.names.begin(), one.names.end());
    for (trace::Interval interval : one.intervals) {
      interval.device += offset;
      merged.intervals.push_back(interval);
    }
    for (trace::StepMark mark : one.steps) {
      mark.device += offset;
      merged.steps.push_back(mark);
    }
  }
  return merged;
}

Result<trace::Trace> read_trace_by_one_clock(const RunDirectory& directory, const run::Job& job) {
  MOTLEY_ASSIGN(trace::Trace measured, read_measured_trace(directory, job.devices.size()));
  std::vector<std::string> machines;
  for (const run::WorkerDevice& device : job.devices) machines.push_back(device.host);
  machines.resize(measured.devices.size());
  trace::align_clocks(measured, machines);
  if (const auto text = read_file(directory.program()))
    if (const auto program = program::parse_program(*text, directory.program()))
      leave_out_waits(*program, measured);
  return measured;
}

Result<run::Job> read_job(const RunDirectory& directory) {
  const auto job = read_json(directory.job());
  if (!job)
    return usage_error("cli.not-a-run",
                       directory.path + ": is no run directory (" + job.error().message + ")");
  return run::job_from_json(*job, directory.job());
}

Result<FinishedRun> read_run(const std::string& path) {
  FinishedRun run{.directory = {path}};
  MOTLEY_ASSIGN(run.job, read_job(run.directory));
  auto summary = read_json(run.directory.summary());
  if (!summary)
    return usage_error(
        "cli.unfinished-run",
        path + ": the run has not finished yet; run the same command again to finish it");
  run.summary = std::move(*summary);
  MOTLEY_ASSIGN(run.measured, read_trace_by_one_clock(run.directory, run.job));
  if (const auto text = read_file(run.directory.predicted())) {
    MOTLEY_ASSIGN(run.predicted, trace::parse_trace(*text, run.directory.predicted()));
  }
  return run;
}

}  // namespace motley::control
