#include "motley/run/recovery.h"

#include <fmt/format.h>

#include <algorithm>

#include "motley/base/json_fields.h"

namespace motley::run {

Json standing_to_json(const Standing& standing) { return fields_to_json(standing); }

Result<Standing> standing_from_json(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  return fields_of<Standing>(object);
}

Result<Recovery> find_recovery(const std::vector<Standing>& standings) {
  constexpr int kNone = -1;
  Recovery recovery;
  recovery.stint = kNone;
  // Who was idle before and after goes on alone; all others only when all have their tensors.
  for (const Standing& each : standings)
    if (!each.is_idle || each.has_left) recovery.stint = std::max(recovery.stint, each.stint);
  if (recovery.stint == kNone)
    return runtime_error("run.unsettled", "nobody that is left has tensors");
  for (const Standing& each : standings)
    if (!each.is_idle && each.stint != recovery.stint && each.entering != recovery.stint)
      return runtime_error("run.unsettled",
                           fmt::format("{} has its tensors as plan {} had them, others as plan {}",
                                       each.device, each.stint, recovery.stint));
  const auto trains = [&](const Standing& each) {
    return each.stint == recovery.stint && !each.is_idle;
  };
  const bool nobody = std::none_of(standings.begin(), standings.end(), trains);
  bool is_first = true;
  for (const Standing& each : standings) {
    // Whoever only enters the stint, or has no part in it, knows no step of it.
    const bool counts = trains(each) || (nobody && each.has_left && each.stint == recovery.stint);
    if (!counts) continue;
    TrainingPoint& point = recovery.point;
    const bool is_further =
        is_first || each.point.step > point.step ||
        (each.point.step == point.step && each.point.evaluated_step > point.evaluated_step);
    if (is_further) point = each.point;
    is_first = false;
  }
  for (const Standing& each : standings) {
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
