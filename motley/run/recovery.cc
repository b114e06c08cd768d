#include "motley/run/recovery.h"

#include <fmt/format.h>

#include <algorithm>

#include "motley/base/json_fields.h"

namespace motley::run {

Json recovery_state_to_json(const RecoveryState& recovery_state) {
  return fields_to_json(recovery_state);
}

Result<RecoveryState> recovery_state_from_json(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  return fields_of<RecoveryState>(object);
}

Result<Recovery> find_recovery(const std::vector<RecoveryState>& recovery_states) {
  constexpr int kNone = -1;
  Recovery recovery;
  recovery.generation = kNone;
  // A process that stays idle enters a generation alone; others only when all have their tensors.
  for (const RecoveryState& each : recovery_states)
    if (!each.is_idle || each.has_left)
      recovery.generation = std::max(recovery.generation, each.generation);
  if (recovery.generation == kNone)
    return runtime_error("run.unsettled", "nobody that is left has tensors");
  for (const RecoveryState& each : recovery_states)
    if (!each.is_idle && each.generation != recovery.generation &&
        each.entering != recovery.generation)
      return runtime_error("run.unsettled",
                           fmt::format("{} has its tensors as plan {} had them, others as plan {}",
                                       each.device, each.generation, recovery.generation));
  const auto trains = [&](const RecoveryState& each) {
    return each.generation == recovery.generation && !each.is_idle;
  };
  const bool nobody = std::none_of(recovery_states.begin(), recovery_states.end(), trains);
  bool is_first = true;
  for (const RecoveryState& each : recovery_states) {
    // A process that is entering the generation, or has no part in it, knows none of its steps.
    const bool counts =
        trains(each) || (nobody && each.has_left && each.generation == recovery.generation);
    if (!counts) continue;
    TrainingPoint& point = recovery.point;
    const bool is_further =
        is_first || each.point.step > point.step ||
        (each.point.step == point.step && each.point.evaluated_step > point.evaluated_step);
    if (is_further) point = each.point;
    is_first = false;
  }
  for (const RecoveryState& each : recovery_states) {
    if (!trains(each)) continue;
    const std::int64_t behind = recovery.point.step - each.point.step;
    if (behind != 0 && (behind != 1 || !each.may_end))
      return runtime_error("run.unsettled",
                           fmt::format("{} has done {} steps, others {}", each.device,
                                       each.point.step, recovery.point.step));
  }
  return recovery;
}

}  // namespace motley::run
