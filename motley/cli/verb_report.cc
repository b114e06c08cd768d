#include <fmt/format.h>

#include "motley/base/file.h"
#include "motley/base/text.h"
#include "motley/cli/run_directory.h"
#include "motley/cli/verbs.h"
#include "motley/report/report.h"
#include "motley/run/job.h"

namespace motley::cli {
namespace {

struct FinishedRun {
  RunDirectory directory;
  run::Job job;
  Json summary;
  trace::Trace measured;
};

Result<Json> read_json(const std::string& path) {
  MOTLEY_ASSIGN(const std::string text, read_file(path));
  return parse_json(text, path);
}

Result<FinishedRun> read_run(const std::string& path) {
  FinishedRun run{{path}, {}, {}, {}};
  auto job = read_json(run.directory.job());
  if (!job)
    return usage_error("cli.not-a-run",
                       path + ": is no run directory (" + job.error().message + ")");
  MOTLEY_ASSIGN(run.job, run::job_from_json(*job, run.directory.job()));
  auto summary = read_json(run.directory.summary());
  if (!summary)
    return usage_error(
        "cli.unfinished-run",
        path + ": the run has not finished yet; run the same command again to finish it");
  run.summary = std::move(*summary);
  MOTLEY_ASSIGN(run.measured, read_measured_trace(run.directory, run.job.devices.size()));
  return run;
}

/// Losses at about ten steps, as one line each.
std::string loss_lines(const Json& losses) {
  std::string text;
  const std::size_t n = losses.size();
  const std::size_t stride = std::max<std::size_t>(1, n / 10);
  for (std::size_t i = 0; i < n; i += stride)
    text += fmt::format("  step {:>6}  loss {:.5f}\n", i, losses[i].get<double>());
  if (n > 1 && (n - 1) % stride != 0)
    text += fmt::format("  step {:>6}  loss {:.5f}\n", n - 1, losses[n - 1].get<double>());
  return text;
}

}  // namespace

Result<int> report_verb(const ReportOptions& options, const Context& context) {
  MOTLEY_ASSIGN(const FinishedRun run, read_run(options.run_dir));
  std::string text = fmt::format("{}: {} steps on {} devices, {} a step\n\n", options.run_dir,
                                 run.summary.value("steps", 0), run.job.devices.size(),
                                 format_seconds(Seconds(run.summary.value("step_s_median", 0.0))));
  Json object = run.summary;
  if (const auto predicted_text = read_file(run.directory.predicted())) {
    MOTLEY_ASSIGN(const trace::Trace predicted,
                  trace::parse_trace(*predicted_text, run.directory.predicted()));
    text += report::print_comparison(predicted, run.measured);
    object["predicted_exposed_comm_s"] = trace::exposed_communication(predicted).value;
  }
  object["exposed_comm_s"] = trace::exposed_communication(run.measured).value;
  text += "\n  loss\n" + loss_lines(run.summary["losses"]);
  context.result(text, object);
  return kDone;
}

Result<int> trace_verb(const ReportOptions& options, const Context& context) {
  MOTLEY_ASSIGN(const FinishedRun run, read_run(options.run_dir));
  const std::string output =
      options.output.empty() ? options.run_dir + "/trace.json" : options.output;
  MOTLEY_RETURN_IF_ERROR(write_file_atomic(output, report::print_chrome_trace(run.measured)));
  context.result(fmt::format("wrote {}: open it in chrome://tracing or Perfetto\n", output),
                 {{"trace", output}, {"intervals", run.measured.intervals.size()}});
  return kDone;
}

}  // namespace motley::cli
