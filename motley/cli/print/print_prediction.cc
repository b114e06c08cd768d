#include "motley/cli/print/print_prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "motley/base/json.h"
#include "motley/base/text.h"

namespace motley::cli {
namespace {

std::vector<std::pair<std::string, Bytes>> memory_parts(const control::DevicePrediction& device) {
  const program::MemoryPeak& peak = device.price.memory;
  return {{"parameters", peak.parameters}, {"states", peak.states},
          {"buffers", peak.buffers},       {"mirrors", peak.mirrors},
          {"inputs", peak.inputs},         {"activations", peak.activations},
          {"gradients", peak.gradients},   {"exchange", peak.exchange},
          {"scratch", peak.scratch},       {"framework", device.framework}};
}

std::string memory_text(const control::DevicePrediction& device) {
  std::vector<std::string> texts;
  for (const auto& [name, bytes] : memory_parts(device))
    if (bytes.value > 0) texts.push_back(fmt::format("{} {}", name, format_bytes(bytes)));
  if (device.is_framework_measured) texts.back() += " (measured)";
  return join(texts, ", ");
}

Json memory_to_json(const control::DevicePrediction& device) {
  Json memory = {{"at", device.price.peak_at}, {"largest", Json::array()}};
  for (const auto& [name, bytes] : memory_parts(device)) memory[name + "_bytes"] = bytes.value;
  memory["framework_from"] = device.is_framework_measured ? "measured there"
                             : device.framework.value > 0 ? "usual figures"
                                                          : "none";
  for (std::size_t i = 0; i < device.price.memory.largest.size(); ++i)
    memory["largest"].push_back({{"name", device.price.largest[i]},
                                 {"bytes", device.price.memory.largest[i].second.value}});
  return memory;
}

double per_step(trace::Nanoseconds part, const trace::Breakdown& whole) {
  return static_cast<double>(part) * 1e-9 /
         static_cast<double>(std::max<std::int64_t>(1, whole.steps));
}

std::string parts_text(const trace::Breakdown& parts) {
  const auto seconds = [&](trace::Nanoseconds part) {
    return format_seconds(Seconds(per_step(part, parts)));
  };
  return fmt::format("{:>9} {:>9} {:>9} {:>9}", seconds(parts.compute),
                     seconds(parts.exposed_communication), seconds(parts.waiting),
                     seconds(parts.bubble));
}

Json parts_to_json(const trace::Breakdown& parts) {
  return {{"compute_s", per_step(parts.compute, parts)},
          {"exposed_comm_s", per_step(parts.exposed_communication, parts)},
          {"waiting_s", per_step(parts.waiting, parts)},
          {"bubble_s", per_step(parts.bubble, parts)}};
}

Json interval_to_json(const cost::PredictionInterval& interval) {
  return Json::array({interval.low, interval.high});
}

std::string device_cells(const control::DevicePrediction& device) {
  const auto bytes = [](double value) {
    return format_bytes(Bytes(static_cast<std::int64_t>(value)));
  };
  const cost::PredictionInterval& peak = device.peak;
  std::string cells =
      fmt::format("{}  {} ({} to {}), {}", parts_text(device.price.parts), bytes(peak.value),
                  bytes(peak.low), bytes(peak.high), device.price.peak_at);
  const auto add_line = [&](const std::string& line) {
    cells += fmt::format("\n  {:<10} {}", "", line);
  };
  add_line(memory_text(device));
  if (!device.price.memory.largest.empty())
    add_line(fmt::format("largest: {} {}", device.price.largest[0],
                         format_bytes(device.price.memory.largest[0].second)));
  if (device.grounds.origin != cost::Origin::kMeasured) add_line("times: " + device.grounds.text);
  return cells;
}

}  // namespace

void add_mirrors(const control::Predicted& predicted, Json& object) {
  if (const auto& mirrors = predicted.mirrors)
    object["mirrors"] = {{"kept_bytes", mirrors->kept.value},
                         {"sent_bytes", mirrors->sent.value},
                         {"keepers", mirrors->keepers},
                         {"survives", mirrors->survives}};
}

void add_prediction(const control::Predicted& predicted, Json& object) {
  add_mirrors(predicted, object);
  object["predicted_step_interval_s"] = interval_to_json(predicted.step);
  object["interval_basis"] = predicted.basis;
  for (const char* key : {"breakdown", "times_from", "peak_interval_bytes", "memory"})
    object[key] = Json::object();
  for (const control::DevicePrediction& device : predicted.devices) {
    object["breakdown"][device.name] = parts_to_json(device.price.parts);
    object["times_from"][device.name] = device.grounds.text;
    object["peak_interval_bytes"][device.name] = interval_to_json(device.peak);
    object["memory"][device.name] = memory_to_json(device);
  }
}

std::string print_prediction(const control::Predicted& predicted) {
  const auto seconds = [](double value) { return format_seconds(Seconds(value)); };
  std::string text =
      fmt::format("step {}, 80 % of runs {} to {} (by {})\n\n", seconds(predicted.step.value),
                  seconds(predicted.step.low), seconds(predicted.step.high), predicted.basis);
  text += fmt::format("  {:<10} {:>9} {:>9} {:>9} {:>9}  {}\n", "device", "compute", "exchange",
                      "waiting", "bubble", "peak memory (80 %), where");
  std::vector<std::pair<std::string, std::string>> rows;
  for (const control::DevicePrediction& device : predicted.devices)
    rows.emplace_back(device.name, device_cells(device));
  text += print_rows(rows);
  if (predicted.mirrors) text += "\n" + control::print_mirror_price(*predicted.mirrors) + "\n";
  return text;
}

}  // namespace motley::cli
