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

/// Decides the work of timing workers; starts none.

/// Returns the device at full speed, without a memory limit.
run::WorkerDevice full_device(const Inputs& inputs, DeviceId id,
                              const std::optional<cluster::Route>& route = std::nullopt);

/// Number of devices of a timed step: 1 alone, else the number that share it.
int ranks_of(const Inputs& inputs, OperatorTask::Setting setting);

/// Returns, for each batch, the first rank's program of a step among `ranks` equal devices.
Result<std::vector<TimedProgram>> reference_programs(const Inputs& inputs,
                                                     const std::vector<std::int64_t>& batches,
                                                     int ranks);

struct TaskPrograms {
  OperatorTask task;
  std::vector<TimedProgram> programs;
};

/// Returns the work of a task's workers, the timed one first. In the shared setting neighbours do
/// the same, as far as there are processors.
std::vector<TimingTask> operator_work(const Inputs& inputs, const TaskPrograms& timed);

struct PaceWork {
  std::vector<DeviceId> devices;
  std::vector<std::int64_t> samples;
};

/// The time of a whole step, and the extra time of each pause in one.
struct PaceTimes {
  run::OpTime step, pause;
};

/// Times whole steps on different machines concurrently. Returns times by item, then by device.
Result<std::vector<std::vector<PaceTimes>>> time_paces(const Inputs& inputs,
                                                       const std::vector<PaceWork>& wave,
                                                       Workers& workers);

/// The machine of a device's worker; "": this one.
std::string machine_of(const Inputs& inputs, DeviceId id);

inline DeviceId first_device(const TaskPrograms& timed) { return timed.task.device; }
inline DeviceId first_device(const PaceWork& work) { return work.devices.front(); }

/// Groups items into waves that are measured concurrently. A wave has at most one item per machine,
/// because different machines do not disturb each other. Items of one machine keep their order.
///
/// Example: items of machines a, b, a, c give the waves a, b, c and a.
template <typename Item>
std::vector<std::vector<Item>> side_by_side(const Inputs& inputs, const std::vector<Item>& items) {
  std::vector<std::vector<Item>> waves;
  std::map<std::string, std::size_t> taken;  // waves that have an item of the machine
  for (const Item& item : items) {
    const std::size_t wave = taken[machine_of(inputs, first_device(item))]++;
    if (wave == waves.size()) waves.emplace_back();
    waves[wave].push_back(item);
  }
  return waves;
}

}  // namespace motley::control
