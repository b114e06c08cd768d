#include "motley/cost/measured/operator_work.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "motley/base/check.h"
#include "motley/graph/work.h"

namespace motley::cost {
namespace {

double distinct_bytes(const program::DeviceProgram& program,
                      const program::ArgumentList& arguments) {
  std::set<BufferId> seen;
  double bytes = 0;
  program::for_each_buffer(arguments, [&](BufferId id) {
    if (seen.insert(id).second) bytes += static_cast<double>(program.buffer(id).bytes().value);
  });
  return bytes;
}

/// Does it read each number and compute with it?
bool is_update(const program::Instruction& instruction) {
  return instruction.op == "motley::update" || instruction.op == "motley::direction" ||
         instruction.op == "motley::apply";
}

/// Of motley::orthogonalize: five iterations of X X^T, of its square, and of that by X.
double orthogonalize_flops(const program::Buffer& matrix) {
  const auto rows = static_cast<double>(matrix.shape.at(0));
  const auto columns = static_cast<double>(matrix.shape.at(1));
  const double least = std::min(rows, columns), most = std::max(rows, columns);
  return 5 * (4 * least * least * most + 2 * least * least * least);
}

OperatorWork added_work(const program::DeviceProgram& program,
                        const program::Instruction& instruction) {
  const double read = distinct_bytes(program, instruction.arguments);
  double written = 0;
  for (const BufferId id : instruction.outputs)
    if (const program::Buffer& buffer = program.buffer(id); buffer.view_of.is_none())
      written += static_cast<double>(buffer.bytes().value);
  double flops = is_update(instruction) ? read : 0;
  if (instruction.op == "motley::orthogonalize")
    flops = orthogonalize_flops(program.buffer(instruction.outputs.at(0)));
  return {flops, read + (instruction.outputs.empty() ? read : written), 1};
}

/// Work of an operator of the graph as the instruction runs it: its tensors have the shapes of the
/// instruction's buffers.
OperatorWork origin_work(const program::DeviceProgram& program,
                         const program::Instruction& instruction, const graph::Graph& graph) {
  const graph::Op& op = graph.op(instruction.origin);
  std::vector<BufferId> buffers;
  std::vector<ValueId> values;
  program::for_each_buffer(instruction.arguments, [&](BufferId id) { buffers.push_back(id); });
  graph::for_each_value(op.arguments, [&](ValueId id) { values.push_back(id); });
  if (buffers.size() != values.size()) return added_work(program, instruction);
  buffers.insert(buffers.end(), instruction.outputs.begin(), instruction.outputs.end());
  values.insert(values.end(), op.outputs.begin(), op.outputs.end());
  std::map<ValueId, BufferId> buffer_of;
  for (std::size_t i = 0; i < std::min(values.size(), buffers.size()); ++i)
    buffer_of.emplace(values[i], buffers[i]);
  const graph::Work work = graph::op_work(graph, instruction.origin, [&](ValueId value) {
    const auto found = buffer_of.find(value);
    return found == buffer_of.end() ? std::vector<std::int64_t>{0}
                                    : program.buffer(found->second).shape;
  });
  return {work.flops.value, static_cast<double>(work.bytes_read.value + work.bytes_written.value),
          1};
}

}  // namespace

std::vector<OperatorWork> instruction_work(const program::DeviceProgram& program,
                                           const graph::Graph& graph) {
  std::vector<OperatorWork> result;
  result.reserve(program.instructions.size());
  for (const program::Instruction& instruction : program.instructions) {
    if (instruction.lane != Lane::kCompute) {
      result.emplace_back();
    } else if (graph::is_view(instruction.full_name())) {
      result.emplace_back();
    } else if (instruction.origin.is_none() ||
               graph.op(instruction.origin).name != instruction.op) {
      result.push_back(added_work(program, instruction));
    } else {
      result.push_back(origin_work(program, instruction, graph));
    }
  }
  return result;
}

}  // namespace motley::cost
