#include "motley/cli/context/progress_printer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>
#include <vector>

#include "motley/base/file.h"
#include "motley/base/text.h"

namespace motley::cli {
namespace {

constexpr Seconds kPlainInterval{5};
constexpr Seconds kTerminalInterval{0.1};
constexpr int kBarWidth = 24;
constexpr const char* kStopCode = "cli.stop-after";

}  // namespace

ProgressPrinter::~ProgressPrinter() { clear(); }

void ProgressPrinter::clear() {
  if (is_drawn_) fmt::print(stderr, "\r\033[K");
  is_drawn_ = false;
}

void ProgressPrinter::note(const std::string& line) {
  clear();
  context_.note(line);
}

Result<void> ProgressPrinter::phase(control::Phase phase,
                                    const std::function<std::string()>& text) {
  const std::string_view name = control::phase_name(phase);
  if (!context_.dump_dir.empty()) {
    std::error_code code;
    std::filesystem::create_directories(context_.dump_dir, code);
    const auto written = write_file_atomic(
        fmt::format("{}/{:02d}-{}.txt", context_.dump_dir, static_cast<int>(phase) + 1, name),
        text());
    if (!written) note("warning: " + written.error().message);
  }
  if (context_.print_phase == name) fmt::print("{}", text());
  if (context_.stop_after == name) return runtime_error(kStopCode, fmt::format("after {}", name));
  return {};
}

Result<void> check_phases(const Context& context) {
  using control::Phase;
  std::vector<std::string> names;
  for (const Phase phase :
       {Phase::kLoad, Phase::kPrice, Phase::kSearch, Phase::kSynth, Phase::kSimulate})
    names.emplace_back(control::phase_name(phase));
  for (const auto& [flag, name] :
       {std::pair("--print", context.print_phase), std::pair("--stop-after", context.stop_after)})
    if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end())
      return usage_error("cli.phase",
                         fmt::format("{}: no phase is named '{}'{}; wanted {}", flag, name,
                                     suggestion_clause(name, names), join(names, ", ")));
  return {};
}

bool is_stop(const Error& error) { return error.code == kStopCode; }

control::Wish ProgressPrinter::step(const control::StepReport& report) {
  if (context_.quiet) return control::Wish::kGoOn;
  const Seconds now = context_.clock->steady();
  const Seconds interval = context_.terminal ? kTerminalInterval : kPlainInterval;
  const bool is_first = !last_;
  if (last_ && now - *last_ < interval) return control::Wish::kGoOn;
  last_ = now;
  const std::int64_t done = report.step + 1;
  if (context_.terminal) {
    const int filled = report.steps > 0 ? static_cast<int>(kBarWidth * done / report.steps) : 0;
    fmt::print(stderr, "\r\033[Ktrain {}{} {}/{} {}", std::string(filled, '='),
               std::string(kBarWidth - filled, '.'), done, report.steps, print_progress(report));
    std::fflush(stderr);
    is_drawn_ = true;
  } else if (!is_first) {  // short runs print no plain progress
    fmt::print(stderr, "train {}/{} {}\n", done, report.steps, print_progress(report));
  }
  return control::Wish::kGoOn;
}

std::string print_progress(const control::StepReport& report) {
  std::string plan;
  if (report.predicted)
    plan = fmt::format(" (plan {}, {:+.1f}%)", format_seconds(*report.predicted),
                       100 * (report.usual.value / report.predicted->value - 1));
  std::vector<std::string> busy;
  const control::LoggedStep& logged = report.logged;
  for (std::size_t r = 0; r < logged.compute_s.size(); ++r)
    busy.push_back(fmt::format("{} {:.0f}%", report.devices[r],
                               100 * logged.compute_s[r] / std::max(1e-12, logged.step_s)));
  const auto left = static_cast<double>(report.steps - report.step - 1);
  return fmt::format("loss: {:.4f}  step: {}{}  busy {}  eta {}", logged.loss,
                     format_seconds(report.usual), plan, join(busy, " "),
                     format_seconds(report.usual * left));
}

}  // namespace motley::cli
