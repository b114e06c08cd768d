#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/result.h"

namespace motley::run {

enum class ScheduleKind { kConstant, kLinear, kCosine, kStep, kOneCycle, kFile };
inline constexpr std::array<std::string_view, 6> kScheduleNames = {
    "constant", "linear", "cosine", "step", "one-cycle", "file"};

/// How learning rates change over a training: each is the optimizer's times factor(step). During a
/// warm-up of w steps the factor rises from 0 as step / w. Then, with t of n steps done:
///   constant   1
///   linear     floor + (1 - floor) (1 - t / n)
///   cosine     floor + (1 - floor) (1 + cos(pi t / n)) / 2
///   step       gamma ^ (t / every), rounded down
///   one-cycle  torch.optim.lr_scheduler.OneCycleLR with its defaults, momentum left as it is: up
///              from 1/25 in the first three tenths, down to 1/250000, both along a cosine
///   file       factors[step]
/// With floor 0 these are the numbers of transformers' get_scheduler; with warm-up 0 those of
/// PyTorch's CosineAnnealingLR (eta_min = floor lr) and StepLR.
struct Schedule {
  ScheduleKind kind = ScheduleKind::kConstant;
  std::int64_t warmup = 0;  ///< steps
  std::int64_t steps = 0;   ///< total, warm-up included; unused by constant and step
  double floor = 0;         ///< linear, cosine
  std::int64_t every = 1;   ///< step
  double gamma = 0.1;       ///< step
  std::vector<double> factors = {};
  bool operator==(const Schedule&) const = default;

  /// Returns the factor of `step`, from 0. After the last step the factor stays constant.
  double factor(std::int64_t step) const;

  static void fields(auto& it, auto& field) {
    field.word("kind", it.kind, kScheduleNames)("warmup", it.warmup)("steps", it.steps);
    field("floor", it.floor)("every", it.every)("gamma", it.gamma)("factors", it.factors);
  }
  Result<void> check(const std::string& where) const;
};

/// Parses "constant", "linear", "linear:FLOOR", "cosine", "cosine:FLOOR", "step:EVERY",
/// "step:EVERY:GAMMA", "one-cycle", or the path of a file with one factor per line (# begins a
/// comment). Leaves warm-up and steps at their defaults. Usage errors, with file and line.
Result<Schedule> parse_schedule(const std::string& text);

/// Checks a schedule. Usage errors: a warm-up below 0, longer than the training or beside a file; a
/// file with fewer factors than `steps`; a one-cycle of fewer than 4 steps.
Result<void> verify_schedule(const Schedule& schedule, std::int64_t steps);

}  // namespace motley::run
