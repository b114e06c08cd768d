#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "motley/control/planning/chosen_plan.h"
#include "motley/cost/cost_model.h"
#include "motley/program/step_parts.h"
#include "motley/simulate/conditions.h"
#include "motley/simulate/step_by_step.h"

namespace motley::control {

/// A program on the simulator's clock.
struct RehearsedProgram {
  simulate::StepByStep steps;
  /// Computes no squares; none: not yet laid out.
  std::optional<simulate::StepByStep> uncounted = {};
  std::set<std::string> devices;
  std::vector<program::StepShape> shapes;  ///< by rank

  explicit RehearsedProgram(simulate::StepByStep made);
  /// Returns what the devices of a step report, by rank.
  std::vector<program::StepParts> find_parts(const simulate::StepByStep::Times& times) const;
  bool uses_any(const std::set<std::string>& others) const;
};

/// Checks that a plan has prices and that the conditions name its devices. Usage errors.
Result<void> check_rehearsal(const ChosenPlan& chosen, const simulate::Conditions& conditions);

/// Lays out a plan's program. Null: it does not fit the memory, or a time is unknown.
Result<std::shared_ptr<RehearsedProgram>> lay_out_if_possible(
    const Inputs& inputs, const Planned& planned, const cost::CostModel& cost,
    const simulate::Conditions& conditions);

/// The programs of a rehearsal, one after the other; each is laid out once.
class RehearsedPrograms {
 public:
  /// `conditions` outlive it.
  RehearsedPrograms(std::unique_ptr<const cost::CostModel> cost,
                    const simulate::Conditions& conditions)
      : cost_(std::move(cost)), conditions_(conditions) {}

  /// Sets the running program; after an error the former one runs.
  Result<void> enter(const std::shared_ptr<const program::Program>& program);
  const RehearsedProgram& current() const { return *current_; }

  using Which = simulate::StepByStep::Which;
  using Times = simulate::StepByStep::Times;
  Result<Times> run(const Which& which, trace::Nanoseconds begin) {
    return current_->steps.run(which, begin);
  }
  /// Runs a step that computes no square norms of gradients.
  Result<Times> run_uncounted(const Which& which, trace::Nanoseconds begin);
  /// Returns how long a move takes: its messages. Copies within a device are negligible.
  Result<trace::Nanoseconds> move_time(const program::Program& move) const;

 private:
  const std::unique_ptr<const cost::CostModel> cost_;
  const simulate::Conditions& conditions_;
  std::vector<std::shared_ptr<RehearsedProgram>> all_;
  std::shared_ptr<RehearsedProgram> current_;
};

}  // namespace motley::control
