#include "motley/search/model_stages/adding_up.h"

#include <cmath>
#include <map>
#include <utility>

namespace motley::search {
namespace {

/// Adds an instruction that sums two tensors of this many elements.
program::Instruction make_sum(program::DeviceProgram& program, DType dtype, std::int64_t elements) {
  const auto add_buffer = [&] {
    program.buffers.push_back({program::BufferKind::kTemporary, dtype, {elements}});
    return BufferId(static_cast<std::int64_t>(program.buffers.size()) - 1);
  };
  program::Instruction sum{Lane::kCompute, "aten::add", "Tensor"};
  sum.arguments = {{add_buffer()}, {add_buffer()}, {std::int64_t{1}}};
  sum.outputs = {add_buffer()};
  return sum;
}

}  // namespace

std::vector<Seconds> find_adding_up(const graph::Graph& graph, const graph::LayerChain& chain,
                                    const cost::CostModel& model, const SharingDevice& device) {
  program::DeviceProgram program{device.name, 1};
  std::map<std::pair<DType, std::int64_t>, std::size_t> known;  // -> instruction
  std::vector<std::pair<std::size_t, std::size_t>> sums;        // layer, instruction
  for (const graph::Output& output : graph.outputs) {
    if (output.kind != graph::OutputKind::kGradient) continue;
    const graph::Value& gradient = graph.value(output.value);
    if (gradient.producer.is_none()) continue;
    const std::size_t op = gradient.producer.index();
    std::int64_t elements =
        graph::value_bytes(graph.value(output.of), {}) / dtype_size(graph.value(output.of).dtype);
    const plan::OperatorSplit* split = device.split_of(op);
    if (split != nullptr && split->factor >= 0)
      elements = std::llround(std::ceil(device.share * static_cast<double>(elements) - 1e-6));
    const auto [at, is_new] =
        known.try_emplace({gradient.dtype, elements}, program.instructions.size());
    if (is_new) program.instructions.push_back(make_sum(program, gradient.dtype, elements));
    sums.emplace_back(chain.of_op[op], at->second);
  }
  std::vector<Seconds> seconds(chain.names.size());
  const auto times = model.times(program);
  if (!times) return seconds;
  for (const auto& [layer, instruction] : sums) seconds[layer] += times->seconds[instruction];
  return seconds;
}

}  // namespace motley::search
