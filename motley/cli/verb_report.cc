#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/cli/print_decisions.h"
#include "motley/cli/verb.h"
#include "motley/control/adapting.h"
#include "motley/control/run_directory.h"
#include "motley/report/report.h"

namespace motley::cli {
namespace {

struct ReportOptions {
  std::string run_dir;
};

std::vector<Flag> report_flags(ReportOptions& options) {
  return {{"run-dir", &options.run_dir, "run directory"}};
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

/// The figures that the run itself named.
report::RunFigures figures_of(const Json& summary, const trace::Trace& trace,
                              const std::string& step, const std::string& peak) {
  report::RunFigures figures{trace, Seconds(summary.value(step, 0.0)), {}};
  for (const Json& device : summary["devices"])
    if (device.contains(peak)) figures.peaks.emplace_back(device[peak].get<std::int64_t>());
  return figures;
}

Result<int> report_run(const ReportOptions& options, const Context& context) {
  MOTLEY_ASSIGN(const control::FinishedRun run, control::read_run(options.run_dir));
  std::string text = fmt::format("{}: {} steps on {} devices, {} a step\n\n", options.run_dir,
                                 run.summary.value("steps", 0), run.job.devices.size(),
                                 format_seconds(Seconds(run.summary.value("step_s_median", 0.0))));
  Json object = run.summary;
  if (run.predicted) {
    text += report::print_comparison(
        figures_of(run.summary, *run.predicted, "predicted_step_s", "predicted_peak_bytes"),
        figures_of(run.summary, run.measured, "step_s_median", "peak_bytes"));
    object["predicted_exposed_comm_s"] = trace::exposed_communication(*run.predicted).value;
  }
  object["exposed_comm_s"] = trace::exposed_communication(run.measured).value;
  text += "\n  loss\n" + loss_lines(run.summary["losses"]);
  if (std::filesystem::exists(run.directory.decisions())) {
    MOTLEY_ASSIGN(const auto decisions, control::read_decisions(run.directory.decisions()));
    text += decision_lines(decisions);
    object["decisions"] = Json::array();
    for (const policy::Decision& decision : decisions)
      object["decisions"].push_back(decision_to_json(decision));
  }
  context.result(text, object);
  return kDone;
}

}  // namespace

Verb report_verb() {
  return make_verb("report", "what happened in a run, predicted beside measured", report_flags,
                   report_run);
}

}  // namespace motley::cli
