#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/policy/action.h"
#include "motley/policy/observation.h"

namespace motley::policy {

/// What could be done, and what it would take until all is done.
struct Alternative {
  std::string what;  ///< for people: "as it is", "1 v100-16g spot us-west1-b"
  Seconds time;
  double cost = 0;
  bool operator==(const Alternative&) const = default;
  static void fields(auto& it, auto& field) {
    field("what", it.what)("time_s", it.time)("cost", it.cost);
  }
};

/// An action and why.
struct Choice {
  Action action;
  std::optional<Seconds> expected;  ///< of a step after it
  std::string why;                  ///< a sentence for people
  /// What it was chosen among, where time and cost left were asked for.
  std::vector<Alternative> alternatives = {};
  bool operator==(const Choice&) const = default;
};

/// Decides what a training does next. A deterministic machine: what it chooses depends on what it
/// was made with and on the observations since, in their order, and on nothing else - no clock,
/// file or process. Its state is a value with a text form, kept in checkpoints:
///
///   choices(restored(state(p)), o) == choices(p, o)     for all observations o
///
class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
  /// Tells it what was seen; what it wants done, in this order. An action begins at a later step
  /// (new programs are prepared while training goes on): until a StepSeen shows it, the policy may
  /// not count on it.
  virtual std::vector<Choice> observe(const Observation& observation) = 0;
  /// Everything that its choices depend on beside what it was made with.
  virtual Json state() const = 0;
  /// Usage error `policy.state`: of another policy or version, or not a state.
  virtual Result<void> restore(const Json& state, const std::string& where) = 0;
};

}  // namespace motley::policy
