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

/// Operators to be timed on one device, which stands for all of its key.
struct OperatorTask {
  /// Alone, or in a step that it shares with the others: neighbours then do the same at once.
  enum class Setting { kAlone, kShared };
  DeviceId device;
  Setting setting = Setting::kAlone;
  cost::DeviceKey key;
  bool operator==(const OperatorTask&) const = default;
};

/// Whole steps of emulated devices of one machine, all at work at once: what they cost each other,
/// and a machine that is slow for a while, is then the same for all of them.
struct PaceTask {
  std::vector<DeviceId> devices;
  std::set<std::vector<std::int64_t>> samples;  ///< of each device, a round each
  bool operator==(const PaceTask&) const = default;
};

/// All that has to be measured before the inputs' model can be priced. In this order.
struct MeasuringTasks {
  std::vector<std::int64_t> batches;  ///< at which operators are timed
  std::vector<OperatorTask> operators;
  std::vector<PaceTask> paces;
  std::vector<std::vector<DeviceId>> groups;  ///< whose exchanges are timed
};

/// Decides what to measure: each device key once, alone and shared; each machine with emulated
/// devices at two splits of the batch, about what its devices will get, and equal parts, which give
/// the slow ones more (their pauses weigh less then); each route at the smallest and largest group.
/// Usage error: a device of a kind that no worker can be.
Result<MeasuringTasks> find_tasks(const Inputs& inputs, const std::string& torch);

/// What a measuring, or a correction, put into a store.
struct KeptTimes {
  std::int64_t entries = 0;
  double spread = 0;  ///< median over the entries
};

/// Measures all of find_tasks, into the store: all of it `rounds` (> 0) times in turn, so that a
/// machine that is slow for a while is so for all that is compared (the store puts the rounds
/// together, cost/measured/readings.h).
Result<KeptTimes> measure(const Inputs& inputs, int rounds, cost::ProfileStore& store,
                          const Outside& outside);

/// Is any device of the plan on this machine?
bool may_measure(const Inputs& inputs, const plan::Plan& plan);

/// Measures the operators of a plan as it splits them, on those of its devices that are here, into
/// the store. False: all were measured before.
enum class Learned { kNothing, kSomething };
Result<Learned> measure_plan(const Inputs& inputs,
                             const std::shared_ptr<const program::Program>& program,
                             const search::Costs& costs, int rounds, cost::ProfileStore& store,
                             const Outside& outside);

/// "KEY on KIND" of the inputs' devices whose newest rounds contradict the older ones.
Result<std::vector<std::string>> find_drifted(const Inputs& inputs, const std::string& torch,
                                              const cost::ProfileStore& store);

}  // namespace motley::control
