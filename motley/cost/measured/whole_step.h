#pragma once

#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/cost/measured/profile_store.h"

namespace motley::cost {

/// The time of a whole step of a model, stored among the operators of an emulated key.
struct StepTime {
  std::int64_t samples = 0;
  Seconds seconds;
  double spread = 0;  ///< median absolute deviation / median
};
OpEntry step_entry(const DeviceKey& key, const std::string& subject, std::int64_t samples);
/// Returns all steps of a subject, by samples.
Result<std::vector<StepTime>> find_steps(const ProfileStore& store, const DeviceKey& key,
                                         const std::string& subject);
/// Makes the entry for the time of the step's instructions at full speed. Stored beside the step,
/// it tells other models the cost of emulation among these neighbours.
OpEntry compute_entry(const DeviceKey& key, const std::string& subject, std::int64_t samples);
/// Makes the entry for the additional cost of each pause in a step: neighbours evict cached data.
OpEntry pause_entry(const DeviceKey& key, const std::string& subject, std::int64_t samples);
/// Returns the speed that emulation really gives, (step by its instructions) / (whole step): the
/// median over all subjects of an emulated key; empty if none was measured.
Result<std::optional<double>> usual_pace(const ProfileStore& store, const DeviceKey& key);
/// Returns the subject's median pause, else that of all subjects of an emulated key, else 0.
Result<Seconds> find_pause(const ProfileStore& store, const DeviceKey& key,
                           const std::string& subject);
/// Returns whether it is one of the entries above and not an operator's.
bool is_whole_step(const OpEntry& entry);

}  // namespace motley::cost
