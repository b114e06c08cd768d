#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "motley/base/result.h"
#include "motley/cost/cost_model.h"
#include "motley/program/program.h"
#include "motley/simulate/conditions.h"
#include "motley/simulate/program_tasks.h"

namespace motley::simulate {

/// Runs a program one step at a time under the conditions of that time, for trainings whose program
/// changes. All devices begin a step at once, as after a change. A draw depends only on seed,
/// device, step and attempt: identical instructions of two programs get identical draws.
///
///   auto steps = StepByStep::make(program, cost, conditions);
///   const auto first = steps->run({.step = 0}, 0);
///   const auto second = steps->run({.step = 1}, first->end);
///
class StepByStep {
 public:
  /// Errors: as simulate; impossible times under these conditions (simulate.size). Requires that
  /// the conditions pass check_conditions (drawn_times.h) and outlive it.
  static Result<StepByStep> make(std::shared_ptr<const program::Program> program,
                                 const cost::CostModel& cost, const Conditions& conditions);

  struct Which {
    std::int64_t step = 0;
    std::int64_t attempt = 0;  ///< earlier attempts
  };
  struct Times {
    Nanoseconds end = 0;  ///< when the last device has finished
    /// Seconds of each instruction, by rank; of an exchange since all its members arrived.
    std::vector<std::vector<double>> took;
  };
  /// Runs a step. Linear in instructions; a step without jitter whose devices are constantly as
  /// slow as in an earlier one is taken from there. A deadlock is an error.
  Result<Times> run(const Which& which, Nanoseconds begin);

  const program::Program& program() const { return *program_; }

 private:
  StepByStep(std::shared_ptr<const program::Program> program, ProgramTasks tasks,
             const Conditions& conditions);
  Result<Times> run_anew(const Which& which, Nanoseconds begin);
  /// The factor of each device at a time, and until when all stay constant.
  struct Slowness {
    std::vector<double> factors;
    Nanoseconds until = 0;
  };
  Slowness slowness_at(Nanoseconds time) const;

  std::shared_ptr<const program::Program> program_;
  ProgramTasks tasks_;
  TaskGraph graph_;  // with the durations of a step
  const Conditions* conditions_;
  std::array<std::uint32_t, 2> key_;
  std::vector<std::vector<Stretch>> stretches_;  // by lane
  bool has_jitter_ = false;
  std::map<std::vector<double>, Times> known_;  // steps from 0 on, by their devices' factors
};

}  // namespace motley::simulate
