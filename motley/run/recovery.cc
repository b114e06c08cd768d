#include "motley/run/recovery.h"

#include <fmt/format.h>

#include <algorithm>

#include "motley/base/json.h"

namespace motley::run {

Json point_to_json(const TrainingPoint& point) {
  return {{"step", point.step},
          {"samples", point.samples},
          {"elapsed_s", point.elapsed_s},
          {"saved_step", point.saved_step},
          {"saved_path", point.saved_path},
          {"saved_host", point.saved_host},
          {"evaluated_step", point.evaluated_step},
          {"best", point.best ? best_to_json(*point.best) : Json(nullptr)}};
}

Result<TrainingPoint> point_from_json(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  TrainingPoint point;
  MOTLEY_ASSIGN(point.step, object.integer("step"));
  MOTLEY_ASSIGN(point.samples, object.integer("samples"));
  MOTLEY_ASSIGN(point.elapsed_s, object.number("elapsed_s"));
  MOTLEY_ASSIGN(point.saved_step, object.integer("saved_step"));
  MOTLEY_ASSIGN(point.saved_path, object.string("saved_path"));
  MOTLEY_ASSIGN(point.saved_host, object.string("saved_host"));
  MOTLEY_ASSIGN(point.evaluated_step, object.integer("evaluated_step"));
  MOTLEY_ASSIGN(const Json* best, object.member("best"));
  if (!best->is_null()) {
    MOTLEY_ASSIGN(point.best, best_from_json(*best, where + ": best"));
  }
  return point;
}

Json standing_to_json(const Standing& standing) {
  return {{"device", standing.device},     {"stint", standing.stint},
          {"is_idle", standing.is_idle},   {"has_left", standing.has_left},
          {"is_open", standing.is_open},   {"may_end", standing.may_end},
          {"entering", standing.entering}, {"point", point_to_json(standing.point)}};
}

Result<Standing> standing_from_json(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  Standing standing;
  MOTLEY_ASSIGN(standing.device, object.string("device"));
  MOTLEY_ASSIGN(const std::int64_t stint, object.integer("stint"));
  MOTLEY_ASSIGN(const std::int64_t entering, object.integer("entering"));
  standing.stint = static_cast<int>(stint);
  standing.entering = static_cast<int>(entering);
  MOTLEY_ASSIGN(standing.is_idle, object.boolean("is_idle"));
  MOTLEY_ASSIGN(standing.has_left, object.boolean("has_left"));
  MOTLEY_ASSIGN(standing.is_open, object.boolean("is_open"));
  MOTLEY_ASSIGN(standing.may_end, object.boolean("may_end"));
  MOTLEY_ASSIGN(const Json* point, object.member("point"));
  MOTLEY_ASSIGN(standing.point, point_from_json(*point, where + ": point"));
  return standing;
}

Json recovery_to_json(const Recovery& recovery) {
  return {{"stint", recovery.stint},
          {"point", point_to_json(recovery.point)},
          {"stops", recovery.stops},
          {"from", recovery.from}};
}

Result<Recovery> recovery_from_json(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  Recovery recovery;
  MOTLEY_ASSIGN(const std::int64_t stint, object.integer("stint"));
  recovery.stint = static_cast<int>(stint);
  MOTLEY_ASSIGN(const Json* point, object.member("point"));
  MOTLEY_ASSIGN(recovery.point, point_from_json(*point, where + ": point"));
  MOTLEY_ASSIGN(recovery.stops, object.boolean("stops"));
  MOTLEY_ASSIGN(recovery.from, object.string("from"));
  return recovery;
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
