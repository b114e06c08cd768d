#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/policy/decision.h"

namespace motley::control {

/// Writes decisions and outcomes to decisions.jsonl (docs/formats/decisions.md). The last decision
/// on a plan may change as steps arrive; earlier lines are final.
class DecisionLog {
 public:
  explicit DecisionLog(std::string path) : path_(std::move(path)) {}
  /// Continues the log of a continued run, or begins a new one.
  enum class From { kStart, kBefore };
  Result<void> open(From from);

  void on_step(double seconds) { steps_.push_back(seconds); }
  std::size_t steps() const { return steps_.size(); }  ///< of the running plan
  /// Usual step time of that plan, without its first step. None: not known yet.
  std::optional<Seconds> usual_step() const;

  /// Adds a decision on the plan, which settles the one before it. Error: it cannot be written.
  Result<void> keep_plan(policy::Decision decision);
  void begin_plan() { steps_.clear(); }
  /// Adds a decision that begins no plan.
  Result<void> keep(policy::Decision decision);
  Result<void> end();

 private:
  void note_outcome();
  Result<void> write() const;

  std::string path_;
  std::vector<policy::Decision> kept_;  // the last decision on a plan, and later ones on none
  std::uintmax_t settled_ = 0;          // bytes of the file before kept_
  std::vector<double> steps_;
};

Result<std::vector<policy::Decision>> read_decisions(const std::string& path);

}  // namespace motley::control
