#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/cost/cost_model.h"
#include "motley/program/program.h"
#include "motley/simulate/distribution.h"

namespace motley::simulate {

/// How much a device's compute times vary: relative standard deviations of lognormal factors with
/// mean 1. Real machines show both: what is drawn for each instruction averages out over a step,
/// what is drawn once for all instructions of a step does not.
struct Jitter {
  double per_instruction = 0;
  double per_step = 0;
  bool operator==(const Jitter&) const = default;
};

/// From `from` to `until`, in time since the start of a run, the device computes `factor` times as
/// slowly. Slow-downs that overlap multiply. Exchanges are not slowed.
struct SlowDown {
  std::string device;
  Seconds from, until;
  double factor = 1;
  bool operator==(const SlowDown&) const = default;
};

/// The device is not there from `from` to `until` (infinite: never again).
struct Absence {
  std::string device;
  Seconds from, until{std::numeric_limits<double>::infinity()};
  bool operator==(const Absence&) const = default;
};

/// The process of a device ends, or hangs, as it comes to an instruction of a step: of a run alone,
/// where times do not say which. A simulation has absences for it.
struct Fault {
  std::string device;
  std::int64_t step = 0, instruction = 0;
  bool hangs = false;
  bool in_move = false;  ///< of the program that moves tensors, after so many steps
  bool operator==(const Fault&) const = default;
};

/// What a device that goes away costs the job: it stops there and then; `detection` later this is
/// known; as soon as all devices are there again it takes `restart` to go on from the last
/// checkpoint, which is after every `checkpoint_every` steps. Steps done since then are lost.
struct Recovery {
  Seconds detection, restart;
  std::int64_t checkpoint_every = 1;
  bool operator==(const Recovery&) const = default;
};

/// What differs from run to run and over time.
struct Conditions {
  std::uint64_t seed = 0;
  std::map<std::string, Jitter> jitter;  ///< by device; none: its times are exact
  std::vector<SlowDown> slow_downs;
  std::vector<Absence> absences;
  std::vector<Fault> faults;
  Recovery recovery;
  bool operator==(const Conditions&) const = default;
};

struct ManyOptions {
  int runs = 100;
  int steps = 1;  ///< of each run
};

/// What the runs gave. Times in seconds.
struct Outcomes {
  /// From the time at which all devices have finished a step to that of the next; over all steps
  /// done of all runs, those that were lost again included.
  Distribution step;
  std::vector<Distribution> device_step;  ///< by rank: from its own begin to its own end
  Distribution total;                     ///< of a run to its last step; runs that get there
  std::int64_t lost_steps = 0;            ///< done and lost again, in all runs
  std::int64_t stopped_runs = 0;          ///< a device stayed away before the last step
};

/// Simulates a program many times, with draws of their own. Same seed, same outcomes; a draw
/// depends on seed, run, device, step and instruction only. Where members meet, the slowest counts,
/// so that the expected maximum over members needs no formula: three members with normal times of
/// standard deviation s meet 0.846 s after their mean, two 0.564 s.
///
/// Errors: as simulate; conditions that name no device of the program or hold numbers that are not
/// possible (usage, code simulate.conditions). Cost: runs times that of find_times for all steps,
/// and again for each absence that hits.
Result<Outcomes> simulate_many(const program::Program& program, const cost::CostModel& cost,
                               const Conditions& conditions, const ManyOptions& options = {});

}  // namespace motley::simulate
