#include "motley/search/split/step_price.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "motley/base/check.h"
#include "motley/search/price/group_cost.h"
#include "motley/simulate/simulate.h"
#include "motley/synth/stages/lower_stages.h"

namespace motley::search {
namespace {

/// Returns "fc.weight", or the operator that makes it: "aten::mm (h.0.attn)".
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

DevicePrice price_device(const program::DeviceProgram& device, const std::vector<Bytes>& scratch) {
  DevicePrice price;
  price.memory = program::find_memory_peak(device, scratch);
  for (const auto& [id, bytes] : price.memory.largest)
    price.largest.push_back(tensor_name(device, id));
  return price;
}

/// Visits all figures that grow with the micro-batches, in nanoseconds, bytes and instructions.
template <typename Price, typename Visit>
void for_each_figure(Price& price, const Visit& visit) {
  visit(price.instructions);
  for (auto& device : price.devices) {
    for (auto* time : {&device.parts.compute, &device.parts.exposed_communication,
                       &device.parts.waiting, &device.parts.bubble, &device.without_transfer})
      visit(*time);
    auto& memory = device.memory;
    for (auto* bytes : {&memory.total, &memory.parameters, &memory.states, &memory.buffers,
                        &memory.mirrors, &memory.inputs, &memory.gradients, &memory.exchange,
                        &memory.activations, &memory.scratch, &memory.persistent})
      visit(bytes->value);
    for (auto& [id, bytes] : memory.largest) visit(bytes.value);
  }
}

Seconds seconds_of(trace::Nanoseconds time) { return Seconds(static_cast<double>(time) / 1e9); }

trace::Nanoseconds nanoseconds_of(Seconds time) { return std::llround(time.value * 1e9); }

std::vector<std::int64_t> figures_of(const StepPrice& price) {
  std::vector<std::int64_t> figures{nanoseconds_of(price.step)};
  for_each_figure(price, [&](std::int64_t figure) { figures.push_back(figure); });
  return figures;
}

bool has_same_names(const StepPrice& a, const StepPrice& b) {
  return std::equal(a.devices.begin(), a.devices.end(), b.devices.begin(), b.devices.end(),
                    [](const DevicePrice& one, const DevicePrice& other) {
                      return one.peak_at == other.peak_at && one.largest == other.largest;
                    });
}

Result<PricedProgram> price(const program::Program& program, const GroupCost& known,
                            const std::vector<cost::CostModel::Times>& times,
                            simulate::SimulateOptions options) {
  PricedProgram priced;
  StepPrice& price = priced.price;
  for (std::size_t rank = 0; rank < program.devices.size(); ++rank) {
    const program::DeviceProgram& device = program.devices[rank];
    price.devices.push_back(price_device(device, times[rank].scratch));
    options.peaks.push_back(price.devices[rank].memory.total);
    price.instructions =
        std::max(price.instructions, static_cast<std::int64_t>(device.instructions.size()));
  }
  MOTLEY_ASSIGN(priced.trace, simulate::simulate(program, known, options));
  price.step = trace::median_step(priced.trace);
  const std::vector<trace::Breakdown> parts = trace::break_down(priced.trace);
  std::vector<trace::Nanoseconds> in_transfer(parts.size(), 0);
  for (const trace::Interval& each : priced.trace.intervals)
    if (each.lane == Lane::kTransfer)
      in_transfer[static_cast<std::size_t>(each.device)] += each.end - each.begin;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    DevicePrice& device = price.devices[rank];
    device.parts = parts[rank];
    device.without_transfer = device.parts.total() - in_transfer[rank];
    device.peak_at = priced.trace.names[rank][device.memory.at.index()];
  }
  return priced;
}

}  // namespace

Result<PricedProgram> price_program(const program::Program& program,
                                    const std::vector<std::string>& group,
                                    const cost::CostModel& model,
                                    const std::vector<cost::CostModel::Times>& times, int steps) {
  return price(program, GroupCost(model, group, known_times(program, times)), times,
               {.steps = steps});
}

Result<std::optional<PlanPrice>> price_stage_kinds(const graph::Graph& graph,
                                                   const plan::Plan& plan,
                                                   const cluster::Cluster& cluster,
                                                   const std::vector<int>& classes,
                                                   const cost::CostModel& model) {
  MOTLEY_ASSIGN(const auto kinds, synth::lower_stage_kinds(graph, plan, cluster, classes));
  if (!kinds) return std::nullopt;
  simulate::StandIns stand_ins;
  for (const plan::Member& member : plan::members(plan))
    stand_ins.devices.push_back(cluster.device(member.device).name);
  const auto named = [&](const std::vector<std::vector<std::size_t>>& lists) {
    std::vector<std::vector<std::string>> names;
    for (const std::vector<std::size_t>& ranks : lists) {
      names.emplace_back();
      for (const std::size_t rank : ranks) names.back().push_back(stand_ins.devices[rank]);
    }
    return names;
  };
  stand_ins.identical = named(kinds->identical);
  stand_ins.groups = named(kinds->groups);
  MOTLEY_ASSIGN(const auto times, model.all_times(kinds->program));
  const std::vector<std::string> as_said;
  auto priced = price(kinds->program, GroupCost(model, as_said, known_times(kinds->program, times)),
                      times, {.stand_ins = &stand_ins});
  if (!priced && priced.error().code == "simulate.unlike") return std::nullopt;
  if (!priced) return tl::make_unexpected(priced.error());
  PlanPrice price{std::move(priced->price), {}, {}};
  price.of_rank.resize(classes.size());
  for (std::size_t i = 0; i < kinds->identical.size(); ++i)
    for (const std::size_t rank : kinds->identical[i]) price.of_rank[rank] = i;
  price.step = price.kinds.step;
  return price;
}

std::optional<StepPrice> continue_line(const std::vector<StepPrice>& three, std::int64_t more) {
  MOTLEY_CHECK(three.size() == 3);
  const std::vector<std::int64_t> first = figures_of(three[0]), second = figures_of(three[1]);
  std::vector<std::int64_t> figures = figures_of(three[2]);
  const bool is_identical =
      has_same_names(three[0], three[1]) && has_same_names(three[1], three[2]);
  if (!is_identical || first.size() != second.size() || second.size() != figures.size()) return {};
  for (std::size_t i = 0; i < figures.size(); ++i) {
    const std::int64_t added = figures[i] - second[i];
    if (added < 0 || added != second[i] - first[i]) return {};
    figures[i] += more * added;
  }
  StepPrice price = three[2];
  price.step = seconds_of(figures[0]);
  std::size_t next = 1;
  for_each_figure(price, [&](std::int64_t& figure) { figure = figures[next++]; });
  return price;
}

}  // namespace motley::search
