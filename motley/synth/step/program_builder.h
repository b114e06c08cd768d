#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "motley/graph/rules/strategy.h"
#include "motley/program/program.h"
#include "motley/synth/step/arguments.h"

namespace motley::synth {

/// Builds one device's program instruction by instruction: gives ids, makes the lanes wait for each
/// other, and at the end says where each temporary is freed. Nothing here depends on how a step is
/// spread. Operators are named with their overload, "aten::sub.Tensor".
class ProgramBuilder {
 public:
  explicit ProgramBuilder(program::DeviceProgram start) : program_(std::move(start)) {}

  BufferId add_buffer(program::Buffer buffer);
  /// A temporary; `base` is what it is a view of (its root is looked up), or none.
  BufferId add_temporary(DType dtype, Shape shape, BufferId base = {});
  /// A temporary of another buffer's dtype and shape.
  BufferId add_like(BufferId like);
  /// Valid until the next buffer is added.
  const program::Buffer& buffer(BufferId id) const { return program_.buffer(id); }

  /// Appends to the compute lane; waits for the transfers that give its operands.
  void compute(program::Instruction instruction);
  void compute(std::string_view name, Arguments arguments, std::vector<BufferId> outputs,
               std::string label, OpId origin = {});
  /// The same into a new temporary.
  BufferId make(std::string_view name, Arguments arguments, DType dtype, Shape shape,
                const std::string& label);
  /// [before, extents, after] of a tensor as flat parts, one after the other.
  BufferId cut(BufferId from, const graph::Slab& slab, const Shape& extents,
               const std::string& label);
  /// The inverse; a view of the flat parts where they lie as in the tensor.
  BufferId join(BufferId flat, const graph::Slab& slab, const Shape& extents, Shape shape,
                const std::string& label);
  /// Views of consecutive stretches of a flat buffer, with these shapes.
  std::vector<BufferId> unpack(BufferId flat, const std::vector<Shape>& shapes,
                               const std::string& label);

  /// Appends a sum over the group, in place, to the transfer lane.
  void all_reduce(BufferId buffer, std::string label);
  /// Appends an exchange of a flat buffer to the transfer lane; `counts` are its other arguments.
  /// Its result of so many elements.
  BufferId exchange(std::string_view op, BufferId from, std::vector<Arguments> counts,
                    std::int64_t elements, std::string label);
  /// Says which part of the whole tensor a persistent buffer is.
  void set_part(BufferId buffer, program::Part part);

  /// The finished program, each temporary freed by the last compute instruction that touches it.
  program::DeviceProgram finish();

 private:
  InstructionId append(program::Instruction instruction);
  InstructionId transfer(std::string_view op, BufferId from, std::vector<Arguments> counts,
                         std::vector<BufferId> outputs, std::string label);
  void place_frees();

  program::DeviceProgram program_;
  std::vector<InstructionId> computed_;     // by buffer: the compute instruction that wrote it
  std::vector<InstructionId> transferred_;  // by buffer: the transfer that summed it
  InstructionId waited_;                    // the last transfer that the compute lane waited for
};

}  // namespace motley::synth
