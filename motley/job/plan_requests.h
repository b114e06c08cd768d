#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "motley/job/device_table.h"
#include "motley/job/generations.h"
#include "motley/job/order.h"
#include "motley/job/surroundings.h"
#include "motley/policy/policy.h"

namespace motley::job {

struct ControllerOptions;

/// The plans that a policy or the job's devices want: requests changes to them, and knows which
/// plan runs and how far the job is. Decisions and notes go to the surroundings.
class PlanRequests {
 public:
  /// All arguments outlive it.
  PlanRequests(const ControllerOptions& options, const DeviceTable& devices, Plans& plans,
               Surroundings& around);

  /// Counts a completed step.
  void on_step(std::int64_t step, Seconds took);
  /// All steps from this one on are done again.
  void go_back(std::int64_t step) { done_ = step; }
  std::int64_t done() const { return done_; }
  Seconds spent() const { return Seconds(spent_); }  ///< on steps
  const Generations& generations() const { return generations_; }
  std::int64_t counts_every() const { return counts_every_; }

  /// Notifies the policy, if there is one, and asks for what it chooses.
  void observe(const policy::Observation& seen, std::int64_t steps_done);
  /// Notifies the policy of losses; returns the plan that it chooses and that may begin.
  std::optional<int> plan_without(const std::vector<std::string>& lost);
  /// Asks for a plan. Notes any error before returning it.
  Result<void> ask(int plan, policy::Decision decision);
  /// Numbers a change to a plan that is given out at once.
  int number(int plan, policy::Decision decision) {
    return generations_.ask(plan, std::move(decision));
  }
  /// Logs a decision that begins no plan.
  void record(policy::Decision decision);
  /// Returns a decision made without the policy.
  policy::Decision decide(int plan, std::string why) const;

  /// Removes and returns the request of that number; none: there was none.
  std::optional<Generations::Asked> take(int number) { return generations_.take(number); }
  /// A requested plan begins with the decision's step; `log` follows.
  void begin(int number, Generations::Asked& asked);
  void log(Generations::Asked asked);
  /// All processes halted in this generation: drops all requests.
  void fall_back(int generation);

  /// Returns what processes must learn next.
  std::optional<Order> next();

  /// Makes a plan for these devices. Runtime error `run.nobody-left`: there are none.
  Result<int> make(const std::vector<std::string>& devices);
  /// Are all devices of the plan there, and enough of them?
  bool may_begin(int plan) const;
  /// Living devices; none: all live.
  std::optional<std::set<std::string>> there() const;

 private:
  void take(std::vector<policy::Choice> choices, std::int64_t steps_done);
  void take_plan(policy::Decision decision);

  const ControllerOptions& options_;
  const DeviceTable& devices_;
  Plans& plans_;
  Surroundings& around_;
  Generations generations_;
  std::deque<run::Change> ready_;  // not yet given to workers
  std::int64_t counts_every_;
  bool tells_counting_;  // workers must learn counts_every_
  double spent_ = 0;     // seconds of steps
  std::int64_t done_ = 0;
};

}  // namespace motley::job
