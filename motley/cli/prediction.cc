#include "motley/cli/prediction.h"

#include <fmt/format.h>

#include <algorithm>

#include "motley/base/file.h"
#include "motley/base/text.h"
#include "motley/simulate/conditions.h"
#include "motley/simulate/simulate.h"

namespace motley::cli {
namespace {

constexpr int kJitterRuns = 200;  // their median is good to a percent of what one step varies by

cost::Origin worst_origin(const Inputs& inputs, const search::Costs& costs,
                          const plan::Plan& plan) {
  cost::Origin worst = cost::Origin::kMeasured;
  for (const plan::Member& member : plan::members(plan))
    worst = std::max(worst, costs.grounds.at(inputs.cluster.device(member.device).name).origin);
  return worst;
}

/// How the inputs name a prediction in the store.
cost::PredictionEntry entry_of(const Inputs& inputs, const char* quantity) {
  return {search::profile_subject(inputs.model.hash, inputs.lowering),
          cluster::cluster_hash(inputs.cluster), quantity, 0, 0};
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

/// "parameters 577 KiB, activations 5.2 MiB, ..." of the parts that are there.
std::string parts_text(const program::MemoryPeak& peak, Bytes framework) {
  const std::pair<const char*, Bytes> parts[] = {
      {"parameters", peak.parameters},   {"states", peak.states},
      {"buffers", peak.buffers},         {"inputs", peak.inputs},
      {"activations", peak.activations}, {"gradients", peak.gradients},
      {"exchange", peak.exchange},       {"scratch", peak.scratch},
      {"framework", framework}};
  std::vector<std::string> texts;
  for (const auto& [name, bytes] : parts)
    if (bytes.value > 0) texts.push_back(fmt::format("{} {}", name, format_bytes(bytes)));
  return join(texts, ", ");
}

/// The trace's step, or with what devices vary by the median of many. Variation can only lengthen a
/// step of median times, as members wait for the slowest; a lognormal factor of mean 1 has its
/// median below 1, which must not show as a shorter step.
Result<Seconds> expected_step(const trace::Trace& trace, const program::Program& program,
                              const cost::ProfileCost& model, const search::Costs& costs) {
  simulate::Conditions conditions;
  for (const program::DeviceProgram& device : program.devices)
    if (const auto found = costs.jitter.find(device.device); found != costs.jitter.end())
      conditions.jitter.insert(*found);
  if (conditions.jitter.empty()) return trace::median_step(trace);
  MOTLEY_ASSIGN(const auto outcomes, simulate::simulate_many(program, model, conditions,
                                                             {.runs = kJitterRuns, .steps = 1}));
  return std::max(trace::median_step(trace), Seconds(outcomes.step.median()));
}

double per_step(trace::Nanoseconds part, const trace::Breakdown& whole) {
  return static_cast<double>(part) * 1e-9 /
         static_cast<double>(std::max<std::int64_t>(1, whole.steps));
}

Json interval_to_json(const cost::PredictionInterval& interval) {
  return Json::array({interval.low, interval.high});
}

}  // namespace

Result<Prediction> predict(const Inputs& inputs, const search::Costs& costs, const plan::Plan& plan,
                           int steps) {
  MOTLEY_ASSIGN(const auto program, synth::lower(inputs.model.graph, plan, inputs.cluster));
  const cost::ProfileCost model = costs.model(inputs.cluster);
  Prediction prediction;
  MOTLEY_ASSIGN(prediction.trace, simulate::simulate(program, model, {.steps = steps}));
  prediction.origin = worst_origin(inputs, costs, plan);
  const auto step =
      cost::find_experience(costs.earlier, entry_of(inputs, "step"), prediction.origin);
  const auto memory =
      cost::find_experience(costs.earlier, entry_of(inputs, "memory"), prediction.origin);
  MOTLEY_ASSIGN(const Seconds expected, expected_step(prediction.trace, program, model, costs));
  prediction.step = step.around(expected.value);
  prediction.parts = trace::break_down(prediction.trace);
  prediction.basis = step.basis;
  for (const program::DeviceProgram& device : program.devices) {
    MOTLEY_ASSIGN(const std::vector<Bytes> scratch, model.scratch_bytes(device));
    prediction.memory.push_back(program::find_memory_peak(device, scratch));
    const program::MemoryPeak& peak = prediction.memory.back();
    prediction.peaks.push_back(memory.around(static_cast<double>(peak.total.value)));
    prediction.largest.push_back(names_of_largest(device, peak));
    prediction.grounds.push_back(costs.grounds.at(device.device));
    MOTLEY_ASSIGN(const DeviceId id, cluster::find_device(inputs.cluster, device.device));
    prediction.framework.push_back(cost::framework_bytes(inputs.cluster.device(id), peak.total));
  }
  return prediction;
}

Result<std::optional<Prediction>> find_prediction(const Inputs& inputs, const search::Costs& costs,
                                                  const plan::Plan& plan, int steps,
                                                  const Context& context) {
  auto prediction = predict(inputs, costs, plan, steps);
  if (prediction) return std::optional<Prediction>(std::move(*prediction));
  const Error& error = prediction.error();
  if (!error.code.starts_with("cost.") || plan::find_shared_region(plan) == nullptr)
    return tl::make_unexpected(error);
  context.note("no prediction, as times of the split operators are not known: " + error.message);
  return std::optional<Prediction>();
}

void add_prediction(const Prediction& prediction, Json& object) {
  object["predicted_step_interval_s"] = interval_to_json(prediction.step);
  object["interval_basis"] = prediction.basis;
  Json peaks = Json::object(), memory = Json::object(), parts = Json::object();
  Json grounds = Json::object();
  for (std::size_t rank = 0; rank < prediction.peaks.size(); ++rank) {
    const std::string& name = prediction.trace.devices[rank];
    const program::MemoryPeak& peak = prediction.memory[rank];
    peaks[name] = interval_to_json(prediction.peaks[rank]);
    grounds[name] = prediction.grounds[rank].text;
    const trace::Breakdown& part = prediction.parts[rank];
    parts[name] = {{"compute_s", per_step(part.compute, part)},
                   {"exposed_comm_s", per_step(part.exposed_communication, part)},
                   {"waiting_s", per_step(part.waiting, part)},
                   {"bubble_s", per_step(part.bubble, part)}};
    Json largest = Json::array();
    for (std::size_t i = 0; i < peak.largest.size(); ++i)
      largest.push_back(
          {{"name", prediction.largest[rank][i]}, {"bytes", peak.largest[i].second.value}});
    memory[name] = {{"parameters_bytes", peak.parameters.value},
                    {"states_bytes", peak.states.value},
                    {"buffers_bytes", peak.buffers.value},
                    {"inputs_bytes", peak.inputs.value},
                    {"activations_bytes", peak.activations.value},
                    {"gradients_bytes", peak.gradients.value},
                    {"exchange_bytes", peak.exchange.value},
                    {"scratch_bytes", peak.scratch.value},
                    {"framework_bytes", prediction.framework[rank].value},
                    {"at", prediction.trace.names[rank][peak.at.index()]},
                    {"largest", std::move(largest)}};
  }
  object["breakdown"] = std::move(parts);
  object["times_from"] = std::move(grounds);
  object["peak_interval_bytes"] = std::move(peaks);
  object["memory"] = std::move(memory);
}

std::string print_prediction(const Prediction& prediction) {
  const auto seconds = [](double value) { return format_seconds(Seconds(value)); };
  const auto bytes = [](double value) {
    return format_bytes(Bytes(static_cast<std::int64_t>(value)));
  };
  std::string text =
      fmt::format("step {}, 80 % of runs {} to {} (by {})\n\n", seconds(prediction.step.value),
                  seconds(prediction.step.low), seconds(prediction.step.high), prediction.basis);
  text += fmt::format("  {:<10} {:>9} {:>9} {:>9} {:>9}  {}\n", "device", "compute", "exchange",
                      "waiting", "bubble", "peak memory (80 %), where");
  std::vector<std::pair<std::string, std::string>> rows;
  for (std::size_t rank = 0; rank < prediction.peaks.size(); ++rank) {
    const trace::Breakdown& part = prediction.parts[rank];
    const cost::PredictionInterval& peak = prediction.peaks[rank];
    const program::MemoryPeak& memory = prediction.memory[rank];
    std::string cells = fmt::format(
        "{:>9} {:>9} {:>9} {:>9}  {} ({} to {}), {}", seconds(per_step(part.compute, part)),
        seconds(per_step(part.exposed_communication, part)), seconds(per_step(part.waiting, part)),
        seconds(per_step(part.bubble, part)), bytes(peak.value), bytes(peak.low), bytes(peak.high),
        prediction.trace.names[rank][memory.at.index()]);
    const auto add_line = [&](const std::string& line) {
      cells += fmt::format("\n  {:<10} {}", "", line);
    };
    add_line(parts_text(memory, prediction.framework[rank]));
    if (!memory.largest.empty())
      add_line(fmt::format("largest: {} {}", prediction.largest[rank][0],
                           format_bytes(memory.largest[0].second)));
    if (prediction.grounds[rank].origin != cost::Origin::kMeasured)
      add_line("times: " + prediction.grounds[rank].text);
    rows.emplace_back(prediction.trace.devices[rank], std::move(cells));
  }
  text += print_rows(rows);
  return text;
}

Result<void> remember(const Inputs& inputs, const Prediction& prediction, Seconds step,
                      const std::vector<std::int64_t>& peak_bytes, const std::string& store_path) {
  if (prediction.origin != cost::Origin::kMeasured || !(step.value > 0)) return {};
  MOTLEY_ASSIGN(cost::ProfileStore store, cost::ProfileStore::open(store_path));
  cost::PredictionEntry entry = entry_of(inputs, "step");
  entry.predicted = prediction.step.value;
  entry.measured = step.value;
  MOTLEY_RETURN_IF_ERROR(store.put(entry));
  if (peak_bytes.size() != prediction.peaks.size() || peak_bytes.empty()) return {};
  const auto fullest = std::max_element(peak_bytes.begin(), peak_bytes.end());
  entry.quantity = "memory";
  entry.predicted = prediction.peaks[static_cast<std::size_t>(fullest - peak_bytes.begin())].value;
  entry.measured = static_cast<double>(*fullest);
  if (!(entry.measured > 0)) return {};
  return store.put(entry);
}

Result<void> check_memory(const Inputs& inputs, const plan::Plan& plan) {
  MOTLEY_ASSIGN(const auto program, synth::lower(inputs.model.graph, plan, inputs.cluster));
  const std::vector<plan::Member> members = plan::members(plan);
  for (std::size_t rank = 0; rank < program.devices.size(); ++rank) {
    const cluster::Device& device = inputs.cluster.device(members[rank].device);
    const Bytes tensors = program::find_memory_peak(program.devices[rank]).total;
    const Bytes peak = cost::with_framework(device, tensors);
    if (device.memory && peak > *device.memory)
      return tl::make_unexpected(
          Error{ErrorKind::kInfeasible, "plan.memory",
                fmt::format("{} needs {} for {} samples, has {}; plan again", device.name,
                            format_bytes(peak), program.devices[rank].samples,
                            format_bytes(*device.memory))});
  }
  return {};
}

Result<plan::Plan> read_plan(const std::string& path, const Inputs& inputs) {
  MOTLEY_ASSIGN(const std::string text, read_file(path));
  MOTLEY_ASSIGN(const plan::Plan plan, plan::parse_plan(text, path, inputs.cluster));
  if (const auto verified = plan::verify_plan(plan, inputs.model.hash, inputs.cluster); !verified)
    return with_context(path, verified.error());
  MOTLEY_RETURN_IF_ERROR(check_memory(inputs, plan));
  return plan;
}

}  // namespace motley::cli
