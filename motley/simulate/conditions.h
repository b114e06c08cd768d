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

/// Jitter of compute times: relative standard deviations of lognormal factors with mean 1. Real
/// machines show both: draws per instruction average out over a step, draws per step do not.
struct Jitter {
  double per_instruction = 0;
  double per_step = 0;
  bool operator==(const Jitter&) const = default;
};

/// From `from` to `until` since a run's start, the device computes `factor` times as slowly.
/// Overlapping slow-downs multiply. Exchanges are not slowed.
struct SlowDown {
  std::string device;
  Seconds from, until;
  double factor = 1;
  bool operator==(const SlowDown&) const = default;
};

/// The device is absent from `from` to `until` (infinite: it never returns).
struct Absence {
  std::string device;
  Seconds from, until{std::numeric_limits<double>::infinity()};
  bool operator==(const Absence&) const = default;
};

/// A process that ends or hangs at an instruction, in real runs only; simulations have absences.
struct Fault {
  std::string device;
  std::int64_t step = 0, instruction = 0;
  bool hangs = false;
  bool in_move = false;  ///< in the program that moves tensors, after `step` steps
  bool operator==(const Fault&) const = default;
};

/// The cost of an absence: the device stops at once; the loss is detected `detection` later. When
/// all devices are present again, `restart` passes until the job continues from the last
/// checkpoint, one every `checkpoint_every` steps. Steps since then are lost.
struct Recovery {
  Seconds detection, restart;
  std::int64_t checkpoint_every = 1;
  bool operator==(const Recovery&) const = default;
};

/// What differs from run to run and over time.
struct Conditions {
  std::uint64_t seed = 0;
  std::map<std::string, Jitter> jitter;  ///< by device; none: exact times
  std::vector<SlowDown> slow_downs;
  std::vector<Absence> absences;
  std::vector<Fault> faults;
  Recovery recovery;
  bool operator==(const Conditions&) const = default;
};

struct ManyOptions {
  int runs = 100;
  int steps = 1;  ///< per run
};

/// Times in seconds.
struct Outcomes {
  /// Between the ends of consecutive steps on all devices; includes lost steps.
  Distribution step;
  std::vector<Distribution> device_step;  ///< by rank: from its own begin to its own end
  Distribution total;                     ///< of a run to its last step; completed runs only
  std::int64_t lost_steps = 0;            ///< done and lost again, in all runs
  std::int64_t stopped_runs = 0;          ///< a device stayed away before the last step
};

/// Simulates a program many times, with new draws each time. Same seed, same outcomes; a draw
/// depends only on seed, run, device, step and instruction. A meeting waits for its slowest member,
/// so the expected maximum needs no formula: three members with normal times of standard deviation
/// s meet 0.846 s after their mean, two 0.564 s.
///
/// Errors: as simulate; conditions with unknown devices or impossible numbers (usage, code
/// simulate.conditions). Cost: find_times over all steps for each run, and again for each absence
/// that takes effect.
Result<Outcomes> simulate_many(const program::Program& program, const cost::CostModel& cost,
                               const Conditions& conditions, const ManyOptions& options = {});

}  // namespace motley::simulate
