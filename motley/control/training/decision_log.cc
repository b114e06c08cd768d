#include "motley/control/training/decision_log.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "motley/base/file.h"
#include "motley/base/statistics.h"
#include "motley/base/text.h"

namespace motley::control {

Result<void> DecisionLog::open(From from) {
  std::error_code code;
  if (from == From::kStart) std::filesystem::remove(path_, code);
  if (!std::filesystem::exists(path_, code)) return {};
  MOTLEY_ASSIGN(const std::string text, read_file(path_));
  settled_ = text.rfind('\n') + 1;  // drops a line that a killed process left incomplete
  return {};
}

std::optional<Seconds> DecisionLog::usual_step() const {
  if (steps_.size() < 2) return std::nullopt;
  return Seconds(median({steps_.begin() + 1, steps_.end()}));
}

void DecisionLog::note_outcome() {
  if (const auto usual = usual_step(); usual && !kept_.empty()) kept_.front().came = usual;
}

Result<void> DecisionLog::keep_plan(policy::Decision decision) {
  note_outcome();
  decision.before = kept_.empty() ? std::nullopt : kept_.front().came;
  decision.came.reset();
  (void)write();  // an error recurs with the next write
  std::error_code code;
  if (!kept_.empty()) settled_ = std::filesystem::file_size(path_, code);
  kept_.clear();
  return keep(std::move(decision));
}

Result<void> DecisionLog::keep(policy::Decision decision) {
  kept_.push_back(std::move(decision));
  return write();
}

Result<void> DecisionLog::end() {
  note_outcome();
  return write();
}

Result<void> DecisionLog::write() const {
  if (kept_.empty()) return {};
  std::error_code code;
  if (std::filesystem::exists(path_, code)) std::filesystem::resize_file(path_, settled_, code);
  std::ofstream file(path_, std::ios::app | std::ios::binary);
  for (const policy::Decision& decision : kept_) file << policy::print_decision(decision) << '\n';
  file.close();
  if (code || file.fail())
    return runtime_error("run.directory", path_ + ": decisions cannot be written");
  return {};
}

Result<std::vector<policy::Decision>> read_decisions(const std::string& path) {
  MOTLEY_ASSIGN(const std::string text, read_file(path));
  std::vector<policy::Decision> decisions;
  std::size_t number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++number;
    if (trim(line).empty()) continue;
    MOTLEY_ASSIGN(decisions.emplace_back(),
                  policy::parse_decision(line, fmt::format("{}:{}", path, number)));
  }
  return decisions;
}

}  // namespace motley::control
