#pragma once

#include <map>
#include <optional>

#include "motley/policy/decision.h"

namespace motley::job {

/// The plans of a job, one after the other. A generation is one run of a plan, numbered by the
/// change that brought it; generation 0 is the initial plan. Whoever makes plans numbers them, too.
///
///   ask: a change to a plan is prepared --begin--> it runs; all earlier ones are past
///                                       --take--> it was refused
class Generations {
 public:
  struct Asked {
    int plan = 0;
    policy::Decision decision;
  };

  explicit Generations(int first) : current_(first), begun_({{0, first}}) {}
  /// Takes over another coordinator's plans by generation, at least one, from the running one on.
  void take_over(const std::map<int, int>& plans);

  int ask(int plan, policy::Decision decision);
  /// Removes and returns the request of that number; none: there was none.
  std::optional<Asked> take(int number);
  void begin(int number, int plan);
  /// All processes halted in this generation, reported or not. Forgets requests and later ones.
  void fall_back(int generation);

  bool is_settled() const { return asked_.empty(); }
  int current() const { return current_; }                ///< plan of the last reported beginning
  int running() const { return begun_.rbegin()->first; }  ///< the last known generation
  int running_plan() const { return begun_.rbegin()->second; }
  /// The generation once all pending changes have begun, and its plan.
  int last() const { return asked_.empty() ? running() : asked_.rbegin()->first; }
  int last_plan() const { return asked_.empty() ? current_ : asked_.rbegin()->second.plan; }
  /// The plan of a past or running generation; none: unknown.
  std::optional<int> plan_of(int generation) const;
  /// Generations, with their plans, any of which may be running.
  std::map<int, int> possible() const;

 private:
  int current_;
  int number_ = 0;
  std::map<int, Asked> asked_;  // not begun yet, by generation
  std::map<int, int> begun_;
  std::map<int, int> numbered_;  // likewise, of all requested changes
};

}  // namespace motley::job
