#include "motley/control/prediction.h"

#include <fmt/format.h>

#include <algorithm>

#include "motley/cost/profile_cost.h"
#include "motley/search/price/expected_step.h"
#include "motley/search/price/group_cost.h"
#include "motley/simulate/simulate.h"

namespace motley::control {
namespace {

cost::Origin worst_origin(const Inputs& inputs, const search::Costs& costs,
                          const plan::Plan& plan) {
  cost::Origin worst = cost::Origin::kMeasured;
  for (const plan::Member& member : plan::members(plan))
    worst = std::max(worst, costs.grounds.at(inputs.cluster.device(member.device).name).origin);
  return worst;
}

/// "fc.weight", or the operator that makes it: "aten::mm (h.0.attn)".
std::string tensor_name(const program::DeviceProgram& device, BufferId id) {
  const program::Buffer& buffer = device.buffer(id);
  if (!buffer.name.empty()) return buffer.name;
  for (const program::Instruction& instruction : device.instructions)
    if (std::find(instruction.outputs.begin(), instruction.outputs.end(), id) !=
        instruction.outputs.end())
      return instruction.full_name() +
             (instruction.label.empty() ? "" : " (" + instruction.label + ")");
  return fmt::format("buffer {}", id.value);
}

std::vector<std::string> names_of_largest(const program::DeviceProgram& device,
                                          const program::MemoryPeak& peak) {
  std::vector<std::string> names;
  for (const auto& [id, bytes] : peak.largest) names.push_back(tensor_name(device, id));
  return names;
}

/// What is said of a rank, but for its part of the trace.
Result<DevicePrediction> predict_device(const Inputs& inputs, const program::DeviceProgram& device,
                                        const search::Costs& costs,
                                        const std::vector<Bytes>& scratch,
                                        const cost::Experience& memory) {
  MOTLEY_ASSIGN(const DeviceId id, cluster::find_device(inputs.cluster, device.device));
  DevicePrediction predicted;
  predicted.name = device.device;
  predicted.memory = program::find_memory_peak(device, scratch);
  const Bytes total = predicted.memory.total;
  predicted.peak = memory.around(static_cast<double>(total.value));
  predicted.largest = names_of_largest(device, predicted.memory);
  predicted.framework = cost::framework_bytes(inputs.cluster.device(id), total);
  predicted.grounds = costs.grounds.at(device.device);
  return predicted;
}

}  // namespace

cost::PredictionEntry prediction_entry(const Inputs& inputs, const char* quantity) {
  return {profile_subject(inputs), cluster::cluster_hash(inputs.cluster), quantity, 0, 0};
}

Result<Predicted> predict(const Inputs& inputs, const Planned& planned, const search::Costs& costs,
                          int steps) {
  const program::Program& program = *planned.program;
  const cost::ProfileCost model = costs.model(inputs.cluster);
  MOTLEY_ASSIGN(const auto times, model.times(program));
  std::vector<std::string> names;
  for (const program::DeviceProgram& device : program.devices) names.push_back(device.device);
  const search::GroupCost known(model, names, search::known_times(program, times));
  Predicted predicted;
  MOTLEY_ASSIGN(predicted.trace, simulate::simulate(program, known, {.steps = steps}));
  predicted.origin = worst_origin(inputs, costs, planned.plan);
  const auto experience = [&](const char* quantity) {
    return cost::find_experience(costs.earlier, prediction_entry(inputs, quantity),
                                 predicted.origin);
  };
  const cost::Experience of_step = experience("step"), of_memory = experience("memory");
  MOTLEY_ASSIGN(const Seconds expected, search::expected_step(trace::median_step(predicted.trace),
                                                              program, known, costs.jitter));
  predicted.step = of_step.around(expected.value);
  predicted.basis = of_step.basis;
  const std::vector<trace::Breakdown> parts = trace::break_down(predicted.trace);
  for (std::size_t rank = 0; rank < program.devices.size(); ++rank) {
    MOTLEY_ASSIGN(auto device, predict_device(inputs, program.devices[rank], costs,
                                              times[rank].scratch, of_memory));
    device.parts = parts[rank];
    device.peak_at = predicted.trace.names[rank][device.memory.at.index()];
    predicted.devices.push_back(std::move(device));
  }
  return predicted;
}

Result<std::optional<Predicted>> find_prediction(const Inputs& inputs, const Planned& planned,
                                                 const search::Costs& costs, int steps,
                                                 Listener& listener) {
  auto predicted = predict(inputs, planned, costs, steps);
  if (predicted) return std::optional<Predicted>(std::move(*predicted));
  const Error& error = predicted.error();
  if (!error.code.starts_with("cost.")) return tl::make_unexpected(error);
  listener.note("no prediction, as not all times are known: " + error.message);
  return std::optional<Predicted>();
}

}  // namespace motley::control
