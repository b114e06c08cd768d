#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/program/program.h"
#include "motley/simulate/conditions.h"
#include "motley/simulate/find_times.h"
#include "motley/simulate/task_graph.h"

namespace motley::simulate {

// Draws and slow-downs applied to the times of a program.

/// Rounds to whole nanoseconds; times beyond 1e9 s count as 1e9 s.
Nanoseconds whole_nanoseconds(Seconds time);

/// Returns the key of a run's draws: the same seed and run give the same draws.
std::array<std::uint32_t, 2> draw_key(std::uint64_t seed, std::int64_t run);

/// The place of a draw. The same place and key give the same factors.
struct DrawPlace {
  std::uint32_t step = 0;
  std::uint32_t device = 0;   ///< unique number
  std::uint32_t attempt = 0;  ///< earlier attempts at the step
};

/// Draws the times of a device's compute instructions: a factor each times a factor of the step.
/// O(instructions). Its arguments must outlive it.
class DrawnTimes {
 public:
  DrawnTimes(const program::DeviceProgram& program, std::span<const TaskId> tasks,
             const Jitter& jitter)
      : program_(program), tasks_(tasks), jitter_(jitter) {}
  /// Writes the drawn durations of the device's compute tasks from `exact` into `drawn`.
  void draw(const std::array<std::uint32_t, 2>& key, const DrawPlace& place,
            std::span<const Nanoseconds> exact, std::span<Nanoseconds> drawn) const;

 private:
  const program::DeviceProgram& program_;
  std::span<const TaskId> tasks_;
  Jitter jitter_;
};

/// Returns each lane's slow-downs, from its device; pair lanes have none. Empty: no slow-downs.
std::vector<std::vector<Stretch>> find_stretches(const program::Program& program,
                                                 const std::vector<SlowDown>& slow_downs,
                                                 std::size_t lanes);

/// Bounds the factor of any instruction's time.
double most_factor(const Conditions& conditions);

/// Checks device names and ranges (usage, code simulate.conditions). `whose`: "the program".
Result<void> check_conditions(const Conditions& conditions, const std::vector<std::string>& devices,
                              std::string_view whose);

}  // namespace motley::simulate
