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

// What conditions make of the times of a program: of draws and slow-downs.

/// Whole nanoseconds; of what lies beyond 1e9 s, as many as that.
Nanoseconds whole_nanoseconds(Seconds time);

/// Of all draws of a run: the same seed and run, the same draws.
std::array<std::uint32_t, 2> draw_key(std::uint64_t seed, std::int64_t run);

/// Whose times are drawn. Same place under the same key, same factors.
struct DrawPlace {
  std::uint32_t step = 0;
  std::uint32_t device = 0;   ///< a number of its own
  std::uint32_t attempt = 0;  ///< how often the step was begun before
};

/// Draws how long one device's compute instructions take in a step: each by a factor of its own and
/// one of the step. O(instructions). What it is made with outlives it.
class DrawnTimes {
 public:
  DrawnTimes(const program::DeviceProgram& program, std::span<const TaskId> tasks,
             const Jitter& jitter)
      : program_(program), tasks_(tasks), jitter_(jitter) {}
  /// From durations by task, of which those of the device's compute are replaced in `drawn`.
  void draw(const std::array<std::uint32_t, 2>& key, const DrawPlace& place,
            std::span<const Nanoseconds> exact, std::span<Nanoseconds> drawn) const;

 private:
  const program::DeviceProgram& program_;
  std::span<const TaskId> tasks_;
  Jitter jitter_;
};

/// By lane of a program's tasks: the slow-downs of its device; what is sent between two is not
/// slowed. Empty: nobody is.
std::vector<std::vector<Stretch>> find_stretches(const program::Program& program,
                                                 const std::vector<SlowDown>& slow_downs,
                                                 std::size_t lanes);

/// No instruction takes more than so many times its time.
double most_factor(const Conditions& conditions);

/// Names that are not among the devices, numbers that are not possible (usage, code
/// simulate.conditions); `whose` devices they are: "the program".
Result<void> check_conditions(const Conditions& conditions, const std::vector<std::string>& devices,
                              std::string_view whose);

}  // namespace motley::simulate
