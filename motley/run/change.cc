#include "motley/run/change.h"

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
  Json devices = Json::array(), evaluations = Json::array();
  for (const WorkerDevice& each : change.devices) devices.push_back(worker_device_to_json(each));
  for (const program::Program& each : change.evaluations)
    evaluations.push_back(own_text(each, device));
  const Json json{{"change", change.number},
                  {"devices", std::move(devices)},
                  {"program", own_text(change.program, device)},
                  {"evaluations", std::move(evaluations)},
                  {"move", own_text(change.move, device)}};
  return json.dump();
}

Result<ChangeOrder> parse_order(const std::string& line) {
  const std::string where = "order";
  MOTLEY_ASSIGN(const Json json, parse_json(line, where));
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  ChangeOrder order;
  MOTLEY_ASSIGN(const std::int64_t number, object.integer("change"));
  order.number = static_cast<int>(number);
  MOTLEY_ASSIGN(const Json* devices, object.member("devices"));
  for (const Json& each : *devices) {
    MOTLEY_ASSIGN(order.devices.emplace_back(), worker_device_from_json(each, where));
  }
  MOTLEY_ASSIGN(const std::string program, object.string("program"));
  MOTLEY_ASSIGN(order.program, program::parse_program(program, where + ": program"));
  MOTLEY_ASSIGN(const std::vector<std::string> evaluations, object.strings("evaluations"));
  for (const std::string& text : evaluations) {
    MOTLEY_ASSIGN(order.evaluations.emplace_back(),
                  program::parse_program(text, where + ": evaluation"));
  }
  MOTLEY_ASSIGN(const std::string move, object.string("move"));
  MOTLEY_ASSIGN(order.move, program::parse_program(move, where + ": move"));
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  return order;
}

Json point_to_json(const TrainingPoint& point) {
  return {{"step", point.step},
          {"elapsed_s", point.elapsed_s},
          {"saved_step", point.saved_step},
          {"saved_path", point.saved_path},
          {"best", point.best ? best_to_json(*point.best) : Json(nullptr)}};
}

Result<TrainingPoint> point_from_json(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  TrainingPoint point;
  MOTLEY_ASSIGN(point.step, object.integer("step"));
  MOTLEY_ASSIGN(point.elapsed_s, object.number("elapsed_s"));
  MOTLEY_ASSIGN(point.saved_step, object.integer("saved_step"));
  MOTLEY_ASSIGN(point.saved_path, object.string("saved_path"));
  MOTLEY_ASSIGN(const Json* best, object.member("best"));
  if (!best->is_null()) {
    MOTLEY_ASSIGN(point.best, best_from_json(*best, where + ": best"));
  }
  return point;
}

}  // namespace motley::run
