#include "motley/cost/measured/operator_work.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "motley/base/check.h"
#include "motley/graph/work.h"
#include "motley/program/boxes.h"

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

/// Returns whether an instruction reads each number and computes with it.
bool is_update(const program::Instruction& instruction) {
  return instruction.op == "motley::update" || instruction.op == "motley::direction" ||
         instruction.op == "motley::apply";
}

/// Returns the work of motley::orthogonalize: five iterations of X X^T, its square, and that by X.
double orthogonalize_flops(const program::Buffer& matrix) {
  const auto rows = static_cast<double>(matrix.shape.at(0));
  const auto columns = static_cast<double>(matrix.shape.at(1));
  const double least = std::min(rows, columns), most = std::max(rows, columns);
  return 5 * (4 * least * least * most + 2 * least * least * least);
}

OperatorWork added_work(const program::DeviceProgram& program,
                        const program::Instruction& instruction) {
  if (const auto copies = program::find_box_copies(instruction); copies && !copies->from.empty()) {
    const DType dtype = program.buffer(copies->from[0].first).dtype;
    return {0, 2 * static_cast<double>(copies->elements * dtype_size(dtype)), 1};
  }
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

/// Work of the graph's operators on the shapes of the instructions' buffers. Caches the last work
/// of each operator: a step repeats it for each micro-batch, mostly in the same shapes.
class OriginWorks {
 public:
  OriginWorks(const program::DeviceProgram& program, const graph::Graph& graph)
      : program_(program), graph_(graph), last_(graph.ops.size()) {}

  OperatorWork of(const program::Instruction& instruction) {
    const graph::Op& op = graph_.op(instruction.origin);
    buffers_.clear();
    values_.clear();
    program::for_each_buffer(instruction.arguments, [&](BufferId id) { buffers_.push_back(id); });
    graph::for_each_value(op.arguments, [&](ValueId id) { values_.push_back(id); });
    if (buffers_.size() != values_.size()) return added_work(program_, instruction);
    buffers_.insert(buffers_.end(), instruction.outputs.begin(), instruction.outputs.end());
    values_.insert(values_.end(), op.outputs.begin(), op.outputs.end());
    Known& known = last_[instruction.origin.index()];
    if (!is_like(known.buffers)) known = {buffers_, find(instruction.origin)};
    return known.work;
  }

 private:
  struct Known {
    std::vector<BufferId> buffers;
    OperatorWork work;
  };

  bool is_like(const std::vector<BufferId>& known) const {
    if (known.size() != buffers_.size() || known.empty()) return false;
    for (std::size_t i = 0; i < known.size(); ++i)
      if (program_.buffer(known[i]).shape != program_.buffer(buffers_[i]).shape) return false;
    return true;
  }

  OperatorWork find(OpId op) const {
    const std::size_t count = std::min(values_.size(), buffers_.size());
    const graph::Work work = graph::op_work(graph_, op, [&](ValueId value) {
      const auto end = values_.begin() + static_cast<std::ptrdiff_t>(count);
      const auto found = std::find(values_.begin(), end, value);
      return found == end
                 ? std::vector<std::int64_t>{0}
                 : program_.buffer(buffers_[static_cast<std::size_t>(found - values_.begin())])
                       .shape;
    });
    return {work.flops.value, static_cast<double>(work.bytes_read.value + work.bytes_written.value),
            1};
  }

  const program::DeviceProgram& program_;
  const graph::Graph& graph_;
  std::vector<Known> last_;        // by operator
  std::vector<BufferId> buffers_;  // of the current instruction
  std::vector<ValueId> values_;    // matching values
};

}  // namespace

std::vector<OperatorWork> instruction_work(const program::DeviceProgram& program,
                                           const graph::Graph& graph) {
  std::vector<OperatorWork> result;
  result.reserve(program.instructions.size());
  OriginWorks works(program, graph);
  for (const program::Instruction& instruction : program.instructions) {
    if (instruction.lane != Lane::kCompute) {
      result.emplace_back();
    } else if (graph::is_view(instruction.op)) {
      result.emplace_back();
    } else if (instruction.origin.is_none() ||
               graph.op(instruction.origin).name != instruction.op) {
      result.push_back(added_work(program, instruction));
    } else {
      result.push_back(works.of(instruction));
    }
  }
  return result;
}

}  // namespace motley::cost
