#include "motley/cost/layers/profiled_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "motley/cost/layers/layer_graph.h"

namespace motley::cost {
namespace {

using program::DeviceProgram;
using program::Instruction;

struct LayerPass {
  std::size_t layer = 0;
  bool is_backward = false;
  std::int64_t samples = 0, rows = 0;
  Bytes kept;
};

/// Finds motley::layer(x, [parameters], layer, work) -> y, kept, kept_whole, and
/// motley::layer_backward(grad, [parameters], kept, kept_whole, layer, work).
std::optional<LayerPass> find_pass(const DeviceProgram& program, const Instruction& instruction) {
  const bool is_backward = instruction.op == kLayerBackward;
  if (!is_backward && instruction.op != kLayer) return std::nullopt;
  const std::size_t number = is_backward ? 4 : 2;
  const auto buffer = [&](std::size_t i) -> const program::Buffer& {
    return program.buffer(is_backward ? std::get<BufferId>(instruction.arguments[1 + i].value)
                                      : instruction.outputs[i]);
  };
  const program::Buffer& kept = buffer(1);
  return LayerPass{
      static_cast<std::size_t>(std::get<std::int64_t>(instruction.arguments[number].value)),
      is_backward, kept.shape[0], kept.shape[1], kept.bytes() + buffer(2).bytes()};
}

/// A device's part of a layer's parameters.
struct Held {
  double bytes = 0;
  std::int64_t rows = 0;  ///< of split parameters; 0: none is split
};

std::map<std::size_t, Held> find_held(const DeviceProgram& program) {
  std::map<std::size_t, Held> held;
  for (const program::Buffer& buffer : program.buffers) {
    if (buffer.kind != program::BufferKind::kParameter) continue;
    const auto layer = layer_of_parameter(buffer.name);
    if (!layer) continue;
    Held& of = held[*layer];
    of.bytes += static_cast<double>(buffer.bytes().value);
    if (buffer.shape.size() == 2) of.rows = std::max(of.rows, buffer.shape[0]);
  }
  return held;
}

}  // namespace

Result<std::vector<TimeSource::Answer>> ProfiledLayers::find(const DeviceProgram& program) const {
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<LayerTime>> known;  // rows, samples
  const auto find_times = [&](std::int64_t rows,
                              std::int64_t samples) -> Result<const std::vector<LayerTime>*> {
    std::vector<LayerTime>& times = known[{rows, samples}];
    if (!times.empty()) return &times;
    if (rows < 1 || rows_ % rows != 0)
      return usage_error("cost.layers",
                         fmt::format("{} has {} of {} parts of its layers: a profile knows equal "
                                     "parts on all devices that share a layer",
                                     program.device, rows, rows_));
    MOTLEY_ASSIGN(times, layer_times(*profile_, kind_, static_cast<int>(rows_ / rows), samples));
    return &times;
  };
  std::vector<Answer> answers(program.instructions.size());
  std::int64_t largest = 1;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const auto pass = find_pass(program, program.instructions[i]);
    if (!pass) continue;
    if (pass->is_backward) answers[i].scratch = pass->kept;
    if (pass->samples == 0) continue;
    largest = std::max(largest, pass->samples);
    MOTLEY_ASSIGN(const auto* times, find_times(pass->rows, pass->samples));
    const LayerTime& time = (*times)[pass->layer];
    answers[i].seconds = pass->is_backward ? time.backward : time.forward;
  }
  const std::map<std::size_t, Held> held = find_held(program);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (!instruction.op.starts_with("motley::update")) continue;
    const auto* parameters = std::get_if<program::ArgumentList>(&instruction.arguments.at(1).value);
    if (parameters == nullptr) continue;
    for (const program::Argument& each : *parameters) {
      const program::Buffer& buffer = program.buffer(std::get<BufferId>(each.value));
      const auto layer = layer_of_parameter(buffer.name);
      if (!layer || held.at(*layer).rows == 0) continue;
      MOTLEY_ASSIGN(const auto* times, find_times(held.at(*layer).rows, largest));
      answers[i].seconds += (*times)[*layer].update *
                            (static_cast<double>(buffer.bytes().value) / held.at(*layer).bytes);
    }
  }
  return answers;
}

std::vector<std::optional<TimeSource::Answer>> ProfiledLayers::times(
    const DeviceProgram& program) const {
  auto found = find(program);
  if (!found) return std::vector<std::optional<Answer>>(program.instructions.size());
  return {found->begin(), found->end()};
}

}  // namespace motley::cost
