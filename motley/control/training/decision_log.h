#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/policy/decision.h"

namespace motley::control {

/// Keeps what is decided while a training runs, in the run directory's decisions.jsonl
/// (docs/formats/decisions.md), with what came of it. The last decision on a plan may still change,
/// as steps come; lines before it stay.
class DecisionLog {
 public:
  explicit DecisionLog(std::string path) : path_(std::move(path)) {}
  /// Goes on behind those of the run that is continued, or begins anew.
  enum class From { kStart, kBefore };
  Result<void> open(From from);

  /// A step by the plan that runs has taken so long.
  void on_step(double seconds) { steps_.push_back(seconds); }
  std::size_t steps() const { return steps_.size(); }  ///< by that plan
  /// What a step by that plan takes: the first is like no other. None: not known yet.
  std::optional<Seconds> usual_step() const;

  /// A decision on the plan: no more comes of the one before it. Result: it cannot be written.
  Result<void> keep_plan(policy::Decision decision);
  /// Another plan runs from now on.
  void begin_plan() { steps_.clear(); }
  /// One by which no plan begins.
  Result<void> keep(policy::Decision decision);
  Result<void> end();

 private:
  void note_outcome();
  Result<void> write() const;

  std::string path_;
  std::vector<policy::Decision> kept_;  // the last decision on a plan, and words since
  std::uintmax_t settled_ = 0;          // bytes of the file before them
  std::vector<double> steps_;           // of the plan that runs
};

/// Lines of decisions.jsonl.
Result<std::vector<policy::Decision>> read_decisions(const std::string& path);

}  // namespace motley::control
