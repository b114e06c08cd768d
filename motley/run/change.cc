#include "motley/run/change.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "motley/base/json.h"
#include "motley/program/parts.h"
#include "motley/program/program_text.h"

namespace motley::run {
namespace {

/// The text of a program of which a device needs its own part: nothing of the others'.
std::string own_text(const program::Program& program, const std::string& device) {
  const auto own = std::find_if(program.devices.begin(), program.devices.end(),
                                [&](const auto& each) { return each.device == device; });
  // Who is none of its devices has nothing to do; their names and kinds are all that is read.
  const Rank rank(own == program.devices.end() ? -1
                                               : static_cast<int>(own - program.devices.begin()));
  return program::print_program(program::own_program(program, rank));
}

Json devices_to_json(const std::vector<WorkerDevice>& devices) {
  Json list = Json::array();
  for (const WorkerDevice& each : devices) list.push_back(worker_device_to_json(each));
  return list;
}

Result<std::vector<WorkerDevice>> read_devices(JsonObject& object, const char* key) {
  MOTLEY_ASSIGN(const Json* list, object.member(key));
  if (!list->is_array())
    return usage_error("run.order",
                       fmt::format("{}: key '{}': wanted a list", object.where(), key));
  std::vector<WorkerDevice> devices;
  for (const Json& each : *list) {
    MOTLEY_ASSIGN(devices.emplace_back(), worker_device_from_json(each, object.where()));
  }
  return devices;
}

/// An order that is one number alone; none: it is a change.
Result<std::optional<ChangeOrder>> read_word(const Json& json, JsonObject& object) {
  ChangeOrder order;
  if (json.contains("halt")) {
    MOTLEY_ASSIGN(const std::int64_t halt, object.integer("halt"));
    order.halt = static_cast<int>(halt);
  } else if (json.contains("follows")) {
    MOTLEY_ASSIGN(const std::int64_t follows, object.integer("follows"));
    order.follows = static_cast<int>(follows);
  } else if (json.contains("counts_every")) {
    MOTLEY_ASSIGN(order.counts_every, object.integer("counts_every"));
    if (*order.counts_every < 1)
      return usage_error("run.order", object.where() + ": key 'counts_every': wanted at least 1");
  } else {
    return std::nullopt;
  }
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  return order;
}

}  // namespace

std::vector<WorkerDevice> devices_of(const program::Program& program,
                                     const std::vector<WorkerDevice>& known) {
  std::vector<WorkerDevice> devices;
  for (const program::DeviceProgram& own : program.devices)
    for (const WorkerDevice& device : known)
      if (device.name == own.device) devices.push_back(device);
  return devices;
}

std::string print_order(const Change& change, const std::string& device) {
  Json evaluations = Json::array();
  for (const program::Program& each : change.evaluations)
    evaluations.push_back(own_text(each, device));
  // A state that is loaded from files needs no move.
  const bool is_loaded = change.recovery && !change.recovery->from.empty();
  const Json json{
      {"change", change.number},
      {"after", change.after},
      {"devices", devices_to_json(change.devices)},
      {"program", own_text(change.program, device)},
      {"evaluations", std::move(evaluations)},
      {"lr_factor", change.lr_factor},
      {"move", is_loaded ? std::string() : own_text(change.move, device)},
      {"moving", devices_to_json(change.moving)},
      {"recovery", change.recovery ? recovery_to_json(*change.recovery) : Json(nullptr)},
      {"keys", store_to_json(change.keys)},
      {"processes", change.processes}};
  return json.dump();
}

std::string print_follow(int number) { return Json{{"follows", number}}.dump(); }

std::string print_counting(std::int64_t every) { return Json{{"counts_every", every}}.dump(); }

std::string print_halt(int number) { return Json{{"halt", number}}.dump(); }

Result<ChangeOrder> parse_order(const std::string& line) {
  const std::string where = "order";
  MOTLEY_ASSIGN(const Json json, parse_json(line, where));
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  MOTLEY_ASSIGN(std::optional<ChangeOrder> word, read_word(json, object));
  if (word) return std::move(*word);
  ChangeOrder order;
  MOTLEY_ASSIGN(const std::int64_t number, object.integer("change"));
  order.number = static_cast<int>(number);
  MOTLEY_ASSIGN(const std::int64_t after, object.integer("after"));
  order.after = static_cast<int>(after);
  MOTLEY_ASSIGN(order.devices, read_devices(object, "devices"));
  MOTLEY_ASSIGN(const std::string program, object.string("program"));
  MOTLEY_ASSIGN(order.program, program::parse_program(program, where + ": program"));
  MOTLEY_ASSIGN(const std::vector<std::string> evaluations, object.strings("evaluations"));
  for (const std::string& text : evaluations) {
    MOTLEY_ASSIGN(order.evaluations.emplace_back(),
                  program::parse_program(text, where + ": evaluation"));
  }
  MOTLEY_ASSIGN(order.lr_factor, object.number("lr_factor"));
  MOTLEY_ASSIGN(const std::string move, object.string("move"));
  if (!move.empty()) {
    MOTLEY_ASSIGN(order.move, program::parse_program(move, where + ": move"));
  }
  MOTLEY_ASSIGN(order.moving, read_devices(object, "moving"));
  MOTLEY_ASSIGN(const Json* recovery, object.member("recovery"));
  if (!recovery->is_null()) {
    MOTLEY_ASSIGN(order.recovery, recovery_from_json(*recovery, where + ": recovery"));
  }
  MOTLEY_ASSIGN(const Json* keys, object.member("keys"));
  if (!keys->is_null()) {
    MOTLEY_ASSIGN(order.keys, store_from_json(*keys, where + ": keys"));
  }
  MOTLEY_ASSIGN(const Json* processes, object.member("processes"));
  if (!processes->is_array())
    return usage_error("run.order", where + ": key 'processes': wanted a list");
  for (const Json& each : *processes) {
    if (!each.is_number_integer())
      return usage_error("run.order", where + ": key 'processes': wanted integers");
    order.processes.push_back(each.get<int>());
  }
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  return order;
}

}  // namespace motley::run
