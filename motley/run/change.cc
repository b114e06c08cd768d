#include "motley/run/change.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "motley/base/json_fields.h"
#include "motley/program/parts.h"
#include "motley/program/program_text.h"

namespace motley::run {
namespace {

/// Returns the text of a program with only the named device's instructions.
std::string own_text(const program::Program& program, const std::string& device) {
  const auto own = std::find_if(program.devices.begin(), program.devices.end(),
                                [&](const auto& each) { return each.device == device; });
  // An unused device has nothing to do; it needs only the devices' names and kinds.
  const Rank rank(own == program.devices.end() ? -1
                                               : static_cast<int>(own - program.devices.begin()));
  return program::print_program(program::own_program(program, rank));
}

/// The fields of a change in its line of JSON; programs as texts.
struct ChangeText {
  int number = 0, after = 0;
  std::vector<WorkerDevice> devices, moving;
  std::string program, move;
  std::vector<std::string> evaluations;
  double lr_factor = 1;
  std::optional<Recovery> recovery;
  std::optional<StoreAddress> keys;
  std::vector<int> processes;
  static void fields(auto& it, auto& field) {
    field("change", it.number)("after", it.after)("devices", it.devices)("program", it.program);
    field("evaluations", it.evaluations)("lr_factor", it.lr_factor)("move", it.move);
    field("moving", it.moving)("recovery", it.recovery)("keys", it.keys);
    field("processes", it.processes);
  }
};

/// Reads an order that consists of one number; none: it is a change.
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
  // A state that is loaded from files needs no move.
  const bool is_loaded = change.recovery && !change.recovery->from.empty();
  ChangeText text{.number = change.number,
                  .after = change.after,
                  .devices = change.devices,
                  .moving = change.moving,
                  .program = own_text(change.program, device),
                  .move = is_loaded ? std::string() : own_text(change.move, device),
                  .lr_factor = change.lr_factor,
                  .recovery = change.recovery,
                  .keys = change.keys,
                  .processes = change.processes};
  for (const program::Program& each : change.evaluations)
    text.evaluations.push_back(own_text(each, device));
  return fields_to_json(text).dump();
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
  MOTLEY_ASSIGN(ChangeText text, fields_of<ChangeText>(object));
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  ChangeOrder order{.number = text.number,
                    .after = text.after,
                    .recovery = std::move(text.recovery),
                    .keys = std::move(text.keys),
                    .processes = std::move(text.processes),
                    .devices = std::move(text.devices),
                    .lr_factor = text.lr_factor,
                    .moving = std::move(text.moving)};
  MOTLEY_ASSIGN(order.program, program::parse_program(text.program, where + ": program"));
  for (const std::string& each : text.evaluations) {
    MOTLEY_ASSIGN(order.evaluations.emplace_back(),
                  program::parse_program(each, where + ": evaluation"));
  }
  if (!text.move.empty()) {
    MOTLEY_ASSIGN(order.move, program::parse_program(text.move, where + ": move"));
  }
  return order;
}

}  // namespace motley::run
