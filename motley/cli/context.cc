#include "motley/cli/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "motley/base/file.h"

namespace motley::cli {
namespace {

const std::vector<std::string> kPhases = {"load", "price", "search", "synth", "simulate", "report"};

constexpr double kPlainInterval = 5.0;     // seconds between plain progress lines
constexpr double kTerminalInterval = 0.1;  // seconds between redraws

}  // namespace

void Context::result(const std::string& text, const Json& object) const {
  if (json) {
    fmt::print("{}\n", object.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    fmt::print("{}", text);
  }
  std::fflush(stdout);
}

void Context::note(const std::string& line) const {
  if (!quiet) fmt::print(stderr, "{}\n", line);
}

bool phase(const Context& context, const std::string& name,
           const std::function<std::string()>& text) {
  const auto position = std::find(kPhases.begin(), kPhases.end(), name) - kPhases.begin();
  if (!context.dump_dir.empty()) {
    std::error_code code;
    std::filesystem::create_directories(context.dump_dir, code);
    const auto written = write_file_atomic(
        fmt::format("{}/{:02d}-{}.txt", context.dump_dir, position + 1, name), text());
    if (!written) context.note("warning: " + written.error().message);
  }
  if (context.print_phase == name) fmt::print("{}", text());
  return context.stop_after == name;
}

int report_error(const Context& context, const Error& error) {
  if (context.json) {
    const Json object = {{"error", {{"code", error.code}, {"message", error.message}}}};
    fmt::print("{}\n", object.dump(2, ' ', false, Json::error_handler_t::replace));
    std::fflush(stdout);
  }
  fmt::print(stderr, "motley: {} [{}]\n", error.message, error.code);
  return exit_code(error.kind);
}

Progress::~Progress() {
  if (drawn_) fmt::print(stderr, "\r\033[K");
}

void Progress::update(std::int64_t done, std::int64_t total, const std::string& detail) {
  if (context_->quiet) return;
  const double now = steady_seconds();
  const double interval = context_->terminal ? kTerminalInterval : kPlainInterval;
  if (last_ >= 0 && now - last_ < interval) return;
  if (last_ < 0 && !context_->terminal) {
    last_ = now;
    return;
  }
  last_ = now;
  if (context_->terminal) {
    constexpr int kWidth = 24;
    const int filled = total > 0 ? static_cast<int>(kWidth * done / total) : 0;
    fmt::print(stderr, "\r\033[K{} {}{} {}/{} {}", what_, std::string(filled, '='),
               std::string(kWidth - filled, '.'), done, total, detail);
    std::fflush(stderr);
    drawn_ = true;
  } else {
    fmt::print(stderr, "{} {}/{} {}\n", what_, done, total, detail);
  }
}

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double calendar_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace motley::cli
