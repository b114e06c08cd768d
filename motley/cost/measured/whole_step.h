#pragma once

#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/cost/measured/profile_store.h"

namespace motley::cost {

/// The time of a whole step of a model, kept among the operators of an emulated key.
struct StepTime {
  std::int64_t samples = 0;
  Seconds seconds;
  double spread = 0;  ///< median absolute deviation / median
};
OpEntry step_entry(const DeviceKey& key, const std::string& subject, std::int64_t samples);
/// All of a subject, by samples.
Result<std::vector<StepTime>> find_steps(const ProfileStore& store, const DeviceKey& key,
                                         const std::string& subject);
/// What the same step takes by the times of its instructions, at full speed: kept beside it, so
/// that other models know what being emulated among these neighbours costs.
OpEntry compute_entry(const DeviceKey& key, const std::string& subject, std::int64_t samples);
/// What each pause in a step adds to it beside itself: of what was cached others leave little.
OpEntry pause_entry(const DeviceKey& key, const std::string& subject, std::int64_t samples);
/// (step by its instructions) / (whole step), the speed that emulation really gives, over all
/// subjects of an emulated key: the median; empty if none was measured.
Result<std::optional<double>> usual_pace(const ProfileStore& store, const DeviceKey& key);
/// The pause: the median over the subject's, else over all subjects of an emulated key; 0 if none
/// was measured.
Result<Seconds> find_pause(const ProfileStore& store, const DeviceKey& key,
                           const std::string& subject);
/// True for the entries above, false for an operator's.
bool is_whole_step(const OpEntry& entry);

}  // namespace motley::cost
