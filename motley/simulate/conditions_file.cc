#include "motley/simulate/conditions_file.h"

#include <fmt/format.h>

#include <limits>
#include <vector>

#include "motley/base/json.h"

namespace motley::simulate {
namespace {

Result<double> number_or(JsonObject& object, const std::string& key, double otherwise) {
  if (!object.has(key)) return otherwise;
  return object.number(key);
}

/// Calls `read` for each object of an optional list.
template <typename Read>
Result<void> read_list(JsonObject& object, const std::string& key, const Read& read) {
  if (!object.has(key)) return {};
  MOTLEY_ASSIGN(const Json* list, object.member(key));
  if (!list->is_array())
    return usage_error("cli.conditions", object.where() + ": key '" + key + "': wanted a list");
  for (std::size_t i = 0; i < list->size(); ++i) {
    MOTLEY_ASSIGN(JsonObject each,
                  JsonObject::make((*list)[i], fmt::format("{}: {}[{}]", object.where(), key, i)));
    MOTLEY_RETURN_IF_ERROR(read(each));
    MOTLEY_RETURN_IF_ERROR(each.refuse_unknown());
  }
  return {};
}

Result<void> read_jitter(JsonObject& object, Conditions& conditions) {
  MOTLEY_ASSIGN(const std::string device, object.string("device"));
  Jitter& jitter = conditions.jitter[device];
  MOTLEY_ASSIGN(jitter.per_instruction, number_or(object, "per_instruction", 0));
  MOTLEY_ASSIGN(jitter.per_step, number_or(object, "per_step", 0));
  return {};
}

Result<void> read_slow_down(JsonObject& object, Conditions& conditions) {
  SlowDown slow;
  MOTLEY_ASSIGN(slow.device, object.string("device"));
  MOTLEY_ASSIGN(slow.from.value, number_or(object, "from_s", 0));
  MOTLEY_ASSIGN(slow.until.value,
                number_or(object, "until_s", std::numeric_limits<double>::infinity()));
  MOTLEY_ASSIGN(slow.factor, object.number("factor"));
  conditions.slow_downs.push_back(std::move(slow));
  return {};
}

Result<void> read_absence(JsonObject& object, Conditions& conditions) {
  Absence absence;
  MOTLEY_ASSIGN(absence.device, object.string("device"));
  MOTLEY_ASSIGN(absence.from.value, object.number("from_s"));
  MOTLEY_ASSIGN(absence.until.value,
                number_or(object, "until_s", std::numeric_limits<double>::infinity()));
  conditions.absences.push_back(std::move(absence));
  return {};
}

Result<void> read_fault(JsonObject& object, Conditions& conditions) {
  Fault fault;
  MOTLEY_ASSIGN(fault.device, object.string("device"));
  MOTLEY_ASSIGN(fault.step, object.integer("step"));
  MOTLEY_ASSIGN(fault.instruction, object.integer("instruction"));
  if (object.has("hangs")) {
    MOTLEY_ASSIGN(fault.hangs, object.boolean("hangs"));
  }
  if (object.has("in_move")) {
    MOTLEY_ASSIGN(fault.in_move, object.boolean("in_move"));
  }
  conditions.faults.push_back(std::move(fault));
  return {};
}

Result<void> read_recovery(const Json& json, const std::string& where, Recovery& recovery) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where + ": recovery"));
  MOTLEY_ASSIGN(recovery.detection.value, number_or(object, "detection_s", 0));
  MOTLEY_ASSIGN(recovery.restart.value, number_or(object, "restart_s", 0));
  if (object.has("checkpoint_every")) {
    MOTLEY_ASSIGN(recovery.checkpoint_every, object.integer("checkpoint_every"));
  }
  return object.refuse_unknown();
}

}  // namespace

Result<Conditions> parse_conditions(std::string_view text, const std::string& name) {
  MOTLEY_ASSIGN(const Json json, parse_json(text, name));
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, name));
  MOTLEY_ASSIGN(const std::string schema, object.string("schema"));
  if (schema != "motley.conditions/1")
    return usage_error("cli.conditions", fmt::format("{}: found schema '{}', wanted "
                                                     "motley.conditions/1",
                                                     name, schema));
  Conditions conditions;
  if (object.has("seed")) {
    MOTLEY_ASSIGN(const std::int64_t seed, object.integer("seed"));
    conditions.seed = static_cast<std::uint64_t>(seed);
  }
  MOTLEY_RETURN_IF_ERROR(
      read_list(object, "jitter", [&](JsonObject& each) { return read_jitter(each, conditions); }));
  MOTLEY_RETURN_IF_ERROR(read_list(
      object, "slow_downs", [&](JsonObject& each) { return read_slow_down(each, conditions); }));
  MOTLEY_RETURN_IF_ERROR(read_list(
      object, "absences", [&](JsonObject& each) { return read_absence(each, conditions); }));
  MOTLEY_RETURN_IF_ERROR(
      read_list(object, "faults", [&](JsonObject& each) { return read_fault(each, conditions); }));
  if (object.has("recovery")) {
    MOTLEY_ASSIGN(const Json* recovery, object.member("recovery"));
    MOTLEY_RETURN_IF_ERROR(read_recovery(*recovery, name, conditions.recovery));
  }
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  return conditions;
}

}  // namespace motley::simulate
