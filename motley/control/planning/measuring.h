#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "motley/control/outside.h"
#include "motley/control/planning/inputs.h"
#include "motley/cost/measured/profile_store.h"
#include "motley/program/program.h"
#include "motley/search/price/costs.h"

namespace motley::control {

/// Operators to be timed on one device, which represents its key.
struct OperatorTask {
  /// Alone, or in a step shared with other devices, whose neighbours work at the same time.
  enum class Setting { kAlone, kShared };
  DeviceId device;
  Setting setting = Setting::kAlone;
  cost::DeviceKey key;
  bool operator==(const OperatorTask&) const = default;
};

/// Whole steps of a machine's emulated devices at once, so that disturbance affects all equally.
struct PaceTask {
  std::vector<DeviceId> devices;
  std::set<std::vector<std::int64_t>> samples;  ///< per device, one round each
  bool operator==(const PaceTask&) const = default;
};

struct MeasuringTasks {
  std::vector<std::int64_t> batches;
  std::vector<OperatorTask> operators;
  std::vector<PaceTask> paces;
  std::vector<std::vector<DeviceId>> groups;  ///< groups for timing exchanges
};

/// Decides what to measure: each device key once alone and once shared; each machine with emulated
/// devices at two splits of the batch; each route at its smallest and largest group. The two splits
/// are about the devices' expected samples, and equal samples, which give slow devices more, so
/// that their pauses weigh less. Usage error: a device kind that no worker supports.
Result<MeasuringTasks> find_tasks(const Inputs& inputs, const std::string& torch);

struct KeptTimes {
  std::int64_t entries = 0;
  double spread = 0;  ///< median over the entries
};

/// Measures all tasks `rounds` (> 0) times in turn into the store, which merges rounds
/// (cost/measured/readings.h). A temporary slow-down thus affects all compared times.
Result<KeptTimes> measure(const Inputs& inputs, int rounds, cost::ProfileStore& store,
                          const Outside& outside);

bool may_measure(const Inputs& inputs, const plan::Plan& plan);

/// Measures a plan's operators as it splits them, on this machine. kNothing: all were known.
enum class Learned { kNothing, kSomething };
Result<Learned> measure_plan(const Inputs& inputs,
                             const std::shared_ptr<const program::Program>& program,
                             const search::Costs& costs, int rounds, cost::ProfileStore& store,
                             const Outside& outside);

/// Returns "KEY on KIND" for each device whose newest rounds contradict the older ones.
Result<std::vector<std::string>> find_drifted(const Inputs& inputs, const std::string& torch,
                                              const cost::ProfileStore& store);

}  // namespace motley::control
