#pragma once

#include <map>
#include <optional>

#include "motley/policy/decision.h"

namespace motley::job {

/// The plans by which a job runs, one after the other. A generation is one of them, by the number
/// of the change that brought it; 0 is the one that the job began by. Plans are numbers, too, of
/// whoever makes them.
///
///   ask: a change to a plan is prepared --begin--> it runs; all before it are past
///                                       --take--> it was refused
class Generations {
 public:
  struct Asked {
    int plan = 0;
    policy::Decision decision;
  };

  explicit Generations(int first) : current_(first), begun_({{0, first}}) {}
  /// Another coordinator had these, by generation, from the one on that runs at least. One at
  /// least.
  void take_over(const std::map<int, int>& plans);

  /// Returns the number of a new change.
  int ask(int plan, policy::Decision decision);
  /// Returns what was asked for by that number, which is not any more; none: nothing was.
  std::optional<Asked> take(int number);
  /// That runs now.
  void begin(int number, int plan);
  /// All stand still in this generation, whether or not anybody said that it had begun. What was
  /// asked for, and generations behind it, are forgotten.
  void fall_back(int generation);

  /// Is nothing asked for?
  bool is_settled() const { return asked_.empty(); }
  int current() const { return current_; }  ///< plan, the last that was said to have begun
  int running() const { return begun_.rbegin()->first; }        ///< the last generation known
  int running_plan() const { return begun_.rbegin()->second; }  ///< its plan
  /// By which the job runs once all is done that was asked for.
  int last() const { return asked_.empty() ? running() : asked_.rbegin()->first; }
  int last_plan() const { return asked_.empty() ? current_ : asked_.rbegin()->second.plan; }
  /// The plan of a generation that runs, or did; none: it is not known.
  std::optional<int> plan_of(int generation) const;
  /// Generations, with their plans, any of which may run when somebody asks.
  std::map<int, int> possible() const;

 private:
  int current_;
  int number_ = 0;               // of the last change that was asked for
  std::map<int, Asked> asked_;   // that have not begun, by generation
  std::map<int, int> begun_;     // plans by generation
  std::map<int, int> numbered_;  // likewise, of all that were asked for
};

}  // namespace motley::job
