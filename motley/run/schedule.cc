#include "motley/run/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "motley/base/exact_math.h"
#include "motley/base/file.h"
#include "motley/base/text.h"

namespace motley::run {
namespace {

std::vector<std::string> known_schedules() {
  return {kScheduleNames.begin(), kScheduleNames.end() - 1};  // a file has no keyword
}

/// Interpolates from `from` to `to` along half a cosine.
double anneal(double from, double to, double part) {
  return to + (from - to) / 2 * (1 + exact_cos_pi(part));
}

/// Returns the factor of `step` with PyTorch's phases, which end at 0.3 steps - 1 and at steps - 1.
double one_cycle(std::int64_t step, std::int64_t steps) {
  constexpr double kBegin = 1.0 / 25, kEnd = kBegin / 1e4, kRising = 0.3;
  const double top = kRising * static_cast<double>(steps) - 1,
               last = static_cast<double>(steps) - 1;
  const auto at = static_cast<double>(step);
  if (at <= top) return anneal(kBegin, 1, at / top);
  return anneal(1, kEnd, (at - top) / (last - top));
}

Result<double> parse_part(const std::string& text, std::string_view part, double least,
                          double most) {
  const auto value = find_float(std::string(part));
  if (value && *value >= least && *value <= most) return *value;
  return usage_error("run.schedule",
                     fmt::format("--schedule {}: found '{}', wanted a number from {} to {}", text,
                                 part, least, most));
}

Result<Schedule> read_schedule(const std::string& path) {
  MOTLEY_ASSIGN(const std::string text, read_file(path));
  Schedule schedule{.kind = ScheduleKind::kFile};
  int line = 0;
  for (std::string_view each : split(text, '\n')) {
    ++line;
    each = trim(each.substr(0, each.find('#')));
    if (each.empty()) continue;
    const auto factor = find_float(std::string(each));
    if (!factor || !(*factor >= 0) || !std::isfinite(*factor))
      return usage_error("run.schedule",
                         fmt::format("{}:{}: found '{}', wanted a factor of the learning rate, "
                                     "from 0 on",
                                     path, line, each));
    schedule.factors.push_back(*factor);
  }
  if (schedule.factors.empty())
    return usage_error("run.schedule", path + ": holds no factor of the learning rate");
  return schedule;
}

}  // namespace

double Schedule::factor(std::int64_t step) const {
  if (kind == ScheduleKind::kFile)
    return factors[static_cast<std::size_t>(
        std::min<std::int64_t>(step, static_cast<std::int64_t>(factors.size()) - 1))];
  if (step < warmup) return static_cast<double>(step) / static_cast<double>(warmup);
  const std::int64_t count = std::max<std::int64_t>(steps - warmup, 1);
  const std::int64_t over = std::min(step - warmup, count);
  const double part = static_cast<double>(over) / static_cast<double>(count);
  switch (kind) {
    case ScheduleKind::kLinear:
      return floor + (1 - floor) * (1 - part);
    case ScheduleKind::kCosine:
      return floor + (1 - floor) * (1 + exact_cos_pi(part)) / 2;
    case ScheduleKind::kStep:
      return exact_power(gamma, static_cast<double>((step - warmup) / every));
    case ScheduleKind::kOneCycle:
      return one_cycle(std::min(over, count - 1), count);
    default:
      return 1;
  }
}

Result<Schedule> parse_schedule(const std::string& text) {
  const std::vector<std::string_view> parts = split(text, ':');
  const auto name = std::find(kScheduleNames.begin(), kScheduleNames.end() - 1, parts[0]);
  if (name == kScheduleNames.end() - 1) {
    if (std::error_code fault; std::filesystem::exists(text, fault)) return read_schedule(text);
    const std::vector<std::string> known = known_schedules();
    return usage_error("run.schedule",
                       fmt::format("--schedule: found '{}', wanted one of {} or a file that is "
                                   "there, with a factor a line{}",
                                   text, join(known, " "), suggestion_clause(parts[0], known)));
  }
  Schedule schedule{.kind = static_cast<ScheduleKind>(name - kScheduleNames.begin())};
  const bool has_floor =
      schedule.kind == ScheduleKind::kLinear || schedule.kind == ScheduleKind::kCosine;
  const std::size_t most = has_floor ? 2 : schedule.kind == ScheduleKind::kStep ? 3 : 1;
  if (parts.size() > most)
    return usage_error("run.schedule",
                       fmt::format("--schedule {}: found {} numbers, wanted {}{}", text,
                                   parts.size() - 1, most > 1 ? "up to " : "", most - 1));
  if (has_floor && parts.size() > 1) {
    MOTLEY_ASSIGN(schedule.floor, parse_part(text, parts[1], 0, 1));
  }
  if (schedule.kind != ScheduleKind::kStep) return schedule;
  const auto every = parts.size() > 1 ? find_integer(parts[1]) : std::nullopt;
  if (!every || *every < 1)
    return usage_error("run.schedule",
                       fmt::format("--schedule {}: after how many steps does the rate fall? give "
                                   "step:EVERY or step:EVERY:GAMMA, EVERY from 1 on",
                                   text));
  schedule.every = *every;
  if (parts.size() > 2) {
    MOTLEY_ASSIGN(schedule.gamma, parse_part(text, parts[2], 0, 1));
  }
  return schedule;
}

Result<void> verify_schedule(const Schedule& schedule, std::int64_t steps) {
  if (schedule.warmup < 0 || schedule.warmup > steps)
    return usage_error("run.schedule",
                       fmt::format("--warmup: found {}, wanted 0 to the {} steps of the training",
                                   schedule.warmup, steps));
  if (schedule.kind == ScheduleKind::kFile) {
    if (schedule.warmup > 0)
      return usage_error("run.schedule",
                         "--warmup: a file of factors has its own warm-up; leave one of them out");
    if (static_cast<std::int64_t>(schedule.factors.size()) < steps)
      return usage_error(
          "run.schedule",
          fmt::format("--schedule: the file holds {} factors, the training has {} steps; give a "
                      "factor for each step",
                      schedule.factors.size(), steps));
  }
  if (schedule.kind == ScheduleKind::kOneCycle && schedule.steps - schedule.warmup < 4)
    return usage_error("run.schedule", "--schedule one-cycle: wanted 4 steps or more");
  return {};
}

Result<void> Schedule::check(const std::string& where) const {
  if (every >= 1 && warmup >= 0 && (kind == ScheduleKind::kFile) == !factors.empty()) return {};
  return usage_error("run.schedule", where +
                                         ": wanted every from 1 on, warmup from 0 on, and "
                                         "factors of a file");
}

}  // namespace motley::run
