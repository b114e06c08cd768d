#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/cli/context/verb.h"
#include "motley/cli/options/planning_options.h"
#include "motley/cli/print/print_decisions.h"
#include "motley/control/training/adapting.h"
#include "motley/control/training/decision_log.h"
#include "motley/control/view/plan_report.h"
#include "motley/control/view/report_parts.h"
#include "motley/control/view/run_report.h"
#include "motley/report/page/page.h"
#include "motley/report/report.h"
#include "motley/report/waits.h"

namespace motley::cli {
namespace {

struct ReportOptions {
  std::string subject;  ///< run directory, or plan file
  std::string output;
  PlanningOptions planning;
};

std::vector<Flag> report_flags(ReportOptions& options) {
  constexpr const char* kOfPlans = "Of a plan";
  Flag profile = profile_flag(options.planning, "what is missing: auto, never or model");
  profile.group = kOfPlans;
  return {{"run-dir", &options.subject, "run directory, or plan file"},
          {"-o,--output", &options.output,
           "page to write, one self-contained HTML file; X.svg: only its picture of a step"},
          {"-m,--model", &options.planning.model, "model of the plan", Flag::Default::kHidden,
           kOfPlans},
          {"-C,--cluster", &options.planning.cluster, "cluster of the plan", Flag::Default::kHidden,
           kOfPlans},
          {"--profiles", &options.planning.profiles, "profile store (default: in the cache folder)",
           Flag::Default::kHidden, kOfPlans},
          std::move(profile)};
}

std::string loss_lines(const Json& losses) {
  std::string text;
  const std::size_t n = losses.size();
  const std::size_t stride = std::max<std::size_t>(1, n / 10);
  const auto line = [&](std::size_t i) {
    if (losses[i].is_number())
      text += fmt::format("  step {:>6}  loss {:.5f}\n", i, losses[i].get<double>());
  };
  for (std::size_t i = 0; i < n; i += stride) line(i);
  if (n > 1 && (n - 1) % stride != 0) line(n - 1);
  return n == 0 ? "" : "\n  loss\n" + text;
}

report::RunFigures figures_of(const Json& summary, const trace::Trace& trace,
                              const std::string& step, const std::string& peak) {
  const auto found = summary.find(step);
  report::RunFigures figures{
      trace, Seconds(found != summary.end() && found->is_number() ? found->get<double>() : 0), {}};
  if (summary.contains("devices"))
    for (const Json& device : summary["devices"])
      if (device.contains(peak)) figures.peaks.emplace_back(device[peak].get<std::int64_t>());
  return figures;
}

std::string rank_lines(const report::ReportData& report_data) {
  std::string text = report_data.ranks.empty() ? "" : "\n";
  for (const report::RankRow& each : report_data.ranks)
    text += fmt::format("  rank {:<3} {:<10} {:<13} {}\n", each.rank, each.device,
                        each.is_running ? "running"
                        : each.step     ? "gone"
                                        : "never started",
                        each.step ? each.where : "");
  return text;
}

/// Prints, for a script's own loop, each device's samples in the last step and its times.
std::string loop_lines(const control::FoundRun& run, const report::ReportData& report_data) {
  if (!run.is_script || report_data.timelines.empty()) return "";
  const trace::Trace& trace = report_data.timelines.back().trace;
  const auto times = report::sum_times(trace, report::find_waits(trace));
  std::string text = fmt::format("\n  {:<16} {:>8} {:>10} {:>10} {:>10}\n", "device", "samples",
                                 "computes", "waits", "exchanges");
  for (std::size_t d = 0; d < std::min(times.size(), report_data.samples.size()); ++d) {
    const auto a_step = [&](trace::Nanoseconds all) {
      return format_seconds(
          Seconds(1e-9 * static_cast<double>(all) / static_cast<double>(times[d].steps)));
    };
    text += fmt::format("  {:<16} {:>8} {:>10} {:>10} {:>10}\n", report_data.samples[d].first,
                        report_data.samples[d].second, a_step(times[d].computing),
                        a_step(times[d].waiting), a_step(times[d].other));
  }
  return text;
}

Result<std::string> write_page(const ReportOptions& options, const report::ReportData& report_data,
                               Json& object) {
  if (options.output.empty()) return std::string();
  const bool is_picture = options.output.ends_with(".svg");
  const std::optional<std::string> text =
      is_picture ? report::print_step_picture(report_data)
                 : report::print_page(report_data, report::print_sections(report_data));
  if (!text)
    return usage_error("report.no-step", options.subject +
                                             ": no step of it was recorded, so there is no picture "
                                             "of one; -o FILE.html writes what is known");
  MOTLEY_RETURN_IF_ERROR(write_file_atomic(options.output, *text));
  object[is_picture ? "picture" : "page"] = options.output;
  return fmt::format("\nwrote {}\n", options.output);
}

Result<int> report_run(const ReportOptions& options, const Context& context) {
  MOTLEY_ASSIGN(const control::FoundRun run, control::find_run(options.subject));
  const report::ReportData report_data = control::RunReporter(run).tell();
  Json object = control::run_to_json(run, report_data);
  std::string text = fmt::format("{}: {}\n", options.subject, report_data.verdict);
  for (const std::string& each : report_data.remarks) text += "  " + each + "\n";
  text += rank_lines(report_data) + loop_lines(run, report_data);
  if (run.measured && run.predicted) {
    text += "\n" + report::print_comparison(
                       figures_of(*run.summary, *run.predicted, "predicted_step_s",
                                  "predicted_peak_bytes"),
                       figures_of(*run.summary, *run.measured, "step_s_median", "peak_bytes"));
    object.update(report::shares_to_json(*run.predicted, *run.measured));
    object["predicted_exposed_comm_s"] = trace::exposed_communication(*run.predicted).value;
  }
  if (run.measured) object["exposed_comm_s"] = trace::exposed_communication(*run.measured).value;
  text += loss_lines(object["losses"]);
  if (std::filesystem::exists(run.directory.decisions())) {
    MOTLEY_ASSIGN(const auto decisions, control::read_decisions(run.directory.decisions()));
    text += decision_lines(decisions);
    object["decisions"] = Json::array();
    for (const policy::Decision& decision : decisions)
      object["decisions"].push_back(decision_to_json(decision));
  }
  MOTLEY_ASSIGN(const std::string written, write_page(options, report_data, object));
  context.result(text + written, object);
  return kDone;
}

std::string neighbour_lines(const report::ReportData& report_data) {
  std::string text;
  for (const report::Neighbour& each : report_data.neighbours)
    text += fmt::format("  {:>10}  {}{}\n", format_seconds(each.step), each.label,
                        each.fits ? "" : " (does not fit)");
  return text.empty() ? "" : "\n  what plans beside it would take\n" + text;
}

std::string command_of_plan(const ReportOptions& options) {
  return control::print_command({"motley", "run", "--plan", options.subject, "-m",
                                 options.planning.model, "-C", options.planning.cluster, "--data",
                                 "DATA", "--steps", "N"});
}

Result<int> report_plan(const ReportOptions& options, const Context& context) {
  if (options.planning.model.empty() || options.planning.cluster.empty())
    return usage_error(
        "cli.plan-of",
        options.subject + ": a plan is reported with its model (-m) and its cluster (-C)");
  MOTLEY_ASSIGN(const auto chosen, choose_plan({options.planning, options.subject},
                                               control::Prices::kAsAsked, context));
  MOTLEY_ASSIGN(report::ReportData report_data, control::tell_plan(*chosen, options.subject));
  report_data.command = command_of_plan(options);
  Json object = report::report_data_to_json(report_data);
  std::string text = fmt::format("{}: {}\n", options.subject, report_data.verdict);
  for (const std::string& each : report_data.remarks) text += "  " + each + "\n";
  text += neighbour_lines(report_data);
  MOTLEY_ASSIGN(const std::string written, write_page(options, report_data, object));
  context.result(text + written, object);
  return kDone;
}

Result<int> report_subject(const ReportOptions& options, const Context& context) {
  return std::filesystem::is_regular_file(options.subject) ? report_plan(options, context)
                                                           : report_run(options, context);
}

}  // namespace

Verb report_verb() {
  return make_verb("report", "report on a run or a plan: text, JSON or a page", report_flags,
                   report_subject);
}

}  // namespace motley::cli
