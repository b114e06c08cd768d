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

/// Runs a program one step at a time, each as conditions have it at that time: for trainings whose
/// program changes on the way. All devices begin a step at once, as one that begins another program
/// does. A draw depends on seed, device, step and attempt only, not on what else the program has:
/// two programs that give a device the same instructions meet the same luck.
///
///   auto steps = StepByStep::make(program, cost, conditions);
///   const auto first = steps->run({.step = 0}, 0);
///   const auto second = steps->run({.step = 1}, first->end);
///
class StepByStep {
 public:
  /// Errors: as simulate; times that are not possible under these conditions (simulate.size). The
  /// conditions are those of check_conditions (drawn_times.h), and outlive it.
  static Result<StepByStep> make(std::shared_ptr<const program::Program> program,
                                 const cost::CostModel& cost, const Conditions& conditions);

  struct Which {
    std::int64_t step = 0;
    std::int64_t attempt = 0;  ///< how often it was begun before
  };
  /// A step that was run.
  struct Times {
    Nanoseconds end = 0;  ///< when the last device has finished
    /// Seconds of each instruction, by rank: an exchange takes from when all are there.
    std::vector<std::vector<double>> took;
  };
  /// Linear in instructions; a step without jitter whose devices are as slow throughout as in an
  /// earlier one is not worked out again. A deadlock is an error.
  Result<Times> run(const Which& which, Nanoseconds begin);

  const program::Program& program() const { return *program_; }

 private:
  StepByStep(std::shared_ptr<const program::Program> program, ProgramTasks tasks,
             const Conditions& conditions);
  Result<Times> run_anew(const Which& which, Nanoseconds begin);
  /// The factor of each device then, and until when they stay so.
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
