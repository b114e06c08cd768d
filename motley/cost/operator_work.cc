#include "motley/cost/operator_work.h"

#include <set>

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

OperatorWork added_work(const program::DeviceProgram& program,
                        const program::Instruction& instruction) {
  const double read = distinct_bytes(program, instruction.arguments);
  double written = 0;
  for (const BufferId id : instruction.outputs)
    if (const program::Buffer& buffer = program.buffer(id); buffer.view_of.is_none())
      written += static_cast<double>(buffer.bytes().value);
  const double flops = instruction.op == "motley::update" ? read : 0;
  return {flops, read + (instruction.outputs.empty() ? read : written), 1};
}

}  // namespace

std::vector<OperatorWork> instruction_work(const program::DeviceProgram& program,
                                           const graph::Graph& graph) {
  graph::Sizes sizes;
  if (!graph.sizes.empty()) sizes[graph.sizes[0].name] = program.samples;
  std::vector<OperatorWork> result;
  result.reserve(program.instructions.size());
  for (const program::Instruction& instruction : program.instructions) {
    if (instruction.lane == program::Lane::kTransfer) {
      result.emplace_back();
    } else if (graph::is_view(instruction.full_name())) {
      result.emplace_back();
    } else if (instruction.origin.is_none() ||
               graph.op(instruction.origin).name != instruction.op) {
      result.push_back(added_work(program, instruction));
    } else {
      const graph::Work work = graph::op_work(graph, instruction.origin, sizes);
      result.push_back({work.flops.value,
                        static_cast<double>(work.bytes_read.value + work.bytes_written.value), 1});
    }
  }
  return result;
}

}  // namespace motley::cost
