#include <fmt/format.h>

#include <utility>

#include "motley/base/json.h"
#include "motley/elastic/lifetimes.h"

namespace motley::elastic {
namespace {

constexpr const char* kLifetimesSchema = "motley.lifetimes/1";

Result<std::pair<std::string, RentedMachine>> read_machine(const Json& json,
                                                           const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  RentedMachine machine;
  MOTLEY_ASSIGN(std::string name, object.string("name"));
  MOTLEY_ASSIGN(machine.kind, object.string("kind"));
  MOTLEY_ASSIGN(machine.zone, object.string("zone"));
  MOTLEY_ASSIGN(const double start, object.number("start"));
  machine.start = Seconds(start);
  if (object.has("end")) {
    MOTLEY_ASSIGN(const double end, object.number("end"));
    machine.end = Seconds(end);
    MOTLEY_ASSIGN(machine.was_lost, object.boolean("lost"));
  }
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  if (machine.end && *machine.end < machine.start)
    return usage_error("elastic.lifetimes",
                       fmt::format("{}: machine '{}' ends before it starts", where, name));
  return std::pair(std::move(name), std::move(machine));
}

}  // namespace

Json Lifetimes::to_json() const {
  Json list = Json::array();
  for (const auto& [name, machine] : machines_) {
    Json json{{"name", name},
              {"kind", machine.kind},
              {"zone", machine.zone},
              {"start", machine.start.value}};
    if (machine.end) {
      json["end"] = machine.end->value;
      json["lost"] = machine.was_lost;
    }
    list.push_back(std::move(json));
  }
  return {{"schema", kLifetimesSchema}, {"machines", std::move(list)}};
}

Result<Lifetimes> Lifetimes::from_json(const Json& json, const std::string& where,
                                       LifetimeOptions options) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  MOTLEY_ASSIGN(const std::string schema, object.string("schema"));
  if (schema != kLifetimesSchema)
    return usage_error("elastic.lifetimes", fmt::format("{}: schema '{}', wanted '{}'", where,
                                                        schema, kLifetimesSchema));
  MOTLEY_ASSIGN(const Json* list, object.member("machines"));
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  if (!list->is_array()) return usage_error("json.type", where + ": key 'machines': wanted a list");
  Lifetimes lifetimes(options);
  for (const Json& each : *list) {
    MOTLEY_ASSIGN(const auto named, read_machine(each, where));
    lifetimes.add(named.first, named.second);
  }
  return lifetimes;
}

}  // namespace motley::elastic
