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

/// An option, with time and cost until all work is finished.
struct Alternative {
  std::string what;  ///< for people: "as it is", "1 v100-16g spot us-west1-b"
  Seconds time;
  double cost = 0;
  bool operator==(const Alternative&) const = default;
  static void fields(auto& it, auto& field) {
    field("what", it.what)("time_s", it.time)("cost", it.cost);
  }
};

struct Choice {
  Action action;
  std::optional<Seconds> expected;  ///< time of a step after the action
  std::string why;                  ///< a sentence for people
  /// The options it was chosen from, where the choice minimizes remaining time or cost.
  std::vector<Alternative> alternatives = {};
  bool operator==(const Choice&) const = default;
};

/// Decides what a training does next. Deterministic: a choice depends only on the constructor's
/// arguments and the observations since, in order; on no clock, file or process. Its state is a
/// value with a text form that checkpoints keep:
///
///   choices(restored(state(p)), o) == choices(p, o)     for all observations o
class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
  /// Takes an observation and returns the wanted actions, in order. An action begins at a later
  /// step; until a StepSeen shows it, the policy must not count on it.
  virtual std::vector<Choice> observe(const Observation& observation) = 0;
  /// Returns all that its choices depend on beside the constructor's arguments.
  virtual Json state() const = 0;
  /// Usage error `policy.state`: another policy or version, or not a state.
  virtual Result<void> restore(const Json& state, const std::string& where) = 0;
};

}  // namespace motley::policy
