#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "motley/control/planning/inputs.h"
#include "motley/control/planning/measuring.h"
#include "motley/control/workers.h"

namespace motley::control {

/// What workers are given to do when something is measured. Decides, and starts nothing.

/// The device at full speed, without a limit of memory.
run::WorkerDevice full_device(const Inputs& inputs, DeviceId id,
                              const std::optional<cluster::Route>& route = std::nullopt);

/// As how many devices a step is timed: 1 alone, else as many as share it.
int ranks_of(const Inputs& inputs, OperatorTask::Setting setting);

/// The first rank's program of a step of each batch among so many equal devices.
Result<std::vector<TimedProgram>> reference_programs(const Inputs& inputs,
                                                     const std::vector<std::int64_t>& batches,
                                                     int ranks);

/// A task, and the programs whose operators it times.
struct TaskPrograms {
  OperatorTask task;
  std::vector<TimedProgram> programs;
};

/// What the workers of one task do, who is timed first. In the shared setting neighbours do the
/// same work at the same time, as many as there are processors for.
std::vector<TimingTask> operator_work(const Inputs& inputs, const TaskPrograms& timed);

/// Whole steps of devices of one machine, of so many samples each.
struct PaceWork {
  std::vector<DeviceId> devices;
  std::vector<std::int64_t> samples;
};

/// A whole step, and what each pause in one adds beside itself.
struct PaceTimes {
  run::OpTime step, pause;
};

/// Times of whole steps on different machines, all at the same time: by item, then by device.
Result<std::vector<std::vector<PaceTimes>>> time_paces(const Inputs& inputs,
                                                       const std::vector<PaceWork>& wave,
                                                       Workers& workers);

/// Where a device's worker runs; "": here.
std::string machine_of(const Inputs& inputs, DeviceId id);

inline DeviceId first_device(const TaskPrograms& timed) { return timed.task.device; }
inline DeviceId first_device(const PaceWork& work) { return work.devices.front(); }

/// Waves of items that are measured at the same time: those of different machines, which disturb
/// each other in nothing, together; those of one machine in turn, as they are listed.
///
/// Example: of a, b, a, c come the waves a, b, c and a.
template <typename Item>
std::vector<std::vector<Item>> side_by_side(const Inputs& inputs, const std::vector<Item>& items) {
  std::vector<std::vector<Item>> waves;
  std::map<std::string, std::size_t> taken;  // waves that have one of the machine
  for (const Item& item : items) {
    const std::size_t wave = taken[machine_of(inputs, first_device(item))]++;
    if (wave == waves.size()) waves.emplace_back();
    waves[wave].push_back(item);
  }
  return waves;
}

}  // namespace motley::control
