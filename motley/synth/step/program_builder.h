#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
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

  /// Makes room for so many instructions, and about as many buffers.
  void reserve(std::size_t instructions);
  /// One that lives from step to step is there once by its name: then it is that one.
  BufferId add_buffer(program::Buffer buffer);
  /// A temporary; `base` is what it is a view of (its root is looked up), or none.
  BufferId add_temporary(DType dtype, Shape shape, BufferId base = {});
  /// A temporary of another buffer's dtype and shape.
  BufferId add_like(BufferId like);
  /// Valid until the next buffer is added.
  const program::Buffer& buffer(BufferId id) const { return program_.buffer(id); }

  /// The group of the exchanges that are appended from now on; at first 0.
  void use_group(GroupId group) { group_ = group; }

  /// Appends to the compute lane; waits for the transfers that give its operands.
  void compute(program::Instruction instruction);
  void compute(std::string_view name, Arguments arguments, std::vector<BufferId> outputs,
               std::string label, OpId origin = {});
  /// The same into a new temporary.
  BufferId make(std::string_view name, Arguments arguments, DType dtype, Shape shape,
                const std::string& label);
  BufferId zeros(const Shape& shape, DType dtype, const std::string& label);
  /// A view of a tensor in another shape.
  BufferId view(BufferId of, Shape shape, const std::string& label);
  /// The same; the tensor itself where it has this shape.
  BufferId seen_as(BufferId x, const Shape& shape, const std::string& label) {
    return buffer(x).shape == shape ? x : view(x, shape, label);
  }
  /// The rows from `begin` on of a tensor seen as a slab, as many as the shape has.
  BufferId part(BufferId of, const graph::Slab& slab, std::int64_t begin, Shape shape,
                const std::string& label);
  /// Tensors of one dtype as flat parts, one after the other.
  BufferId pack(const std::vector<BufferId>& tensors, DType dtype, const std::string& label);
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
  /// Appends a send to another rank, in the peer lane, as soon as the buffer is there.
  InstructionId send(BufferId buffer, Rank to, std::string label);
  /// Appends what another rank sends: a new temporary. It may begin when the compute instruction
  /// `after` is over; none: at once.
  BufferId receive(Rank from, DType dtype, Shape shape, InstructionId after, std::string label);
  /// What is computed next waits for a send: its buffer is free from then on.
  void wait_for(InstructionId send) { awaited_.push_back(send); }
  std::size_t instructions() const { return program_.instructions.size(); }
  /// Instructions from this one on that came from an operator came from this one (none: from none).
  void set_origins(std::size_t from, OpId origin);
  /// The last compute instruction so far; none: there is none.
  InstructionId last_computed() const { return last_computed_; }

  /// Says which part of the whole tensor a persistent buffer is.
  void set_part(BufferId buffer, program::Part part);

  /// The finished program, each temporary freed by the last compute instruction that touches it.
  program::DeviceProgram finish();

 private:
  InstructionId append(program::Instruction instruction);
  InstructionId transfer(std::string_view op, BufferId from, std::vector<Arguments> counts,
                         std::vector<BufferId> outputs, std::string label);
  void place_frees();

  /// What another lane than the compute lane waits for before it reads a buffer.
  std::vector<InstructionId> writers_of(BufferId buffer) const;

  program::DeviceProgram program_;
  GroupId group_{0};
  std::map<std::string, BufferId> persistent_;  // by name
  std::vector<InstructionId> computed_;         // by buffer: the compute instruction that wrote it
  std::vector<InstructionId> transferred_;      // by buffer: the transfer that summed it
  std::vector<InstructionId> received_;         // by buffer: the receive that gave it
  InstructionId waited_;  // the last transfer that the compute lane waited for
  /// By sending rank the last receive that the compute lane waited for.
  std::map<Rank, InstructionId> waited_from_;
  std::vector<InstructionId> awaited_;  // sends
  InstructionId last_computed_;
};

}  // namespace motley::synth
