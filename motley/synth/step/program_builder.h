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

/// Builds one device's program instruction by instruction: assigns ids, adds waits between lanes,
/// and finally frees each temporary. It is independent of how a step is sharded. Operator names
/// include the overload: "aten::sub.Tensor".
class ProgramBuilder {
 public:
  explicit ProgramBuilder(program::DeviceProgram start) : program_(std::move(start)) {}

  /// Reserves space for this many instructions, and about as many buffers.
  void reserve(std::size_t instructions);
  /// Adds a buffer. A persistent one is added once per name; later calls return the first.
  BufferId add_buffer(program::Buffer buffer);
  /// Adds a temporary; `base`, if any, is the buffer that it is a view of (its root is looked up).
  BufferId add_temporary(DType dtype, Shape shape, BufferId base = {});
  BufferId add_like(BufferId like);
  /// Valid until the next buffer is added.
  const program::Buffer& buffer(BufferId id) const { return program_.buffer(id); }

  /// Sets the group of subsequent exchanges; initially 0.
  void use_group(GroupId group) { group_ = group; }

  /// Appends to the compute lane, with waits for the transfers of its operands.
  void compute(program::Instruction instruction);
  void compute(std::string_view name, Arguments arguments, std::vector<BufferId> outputs,
               std::string label, OpId origin = {});
  /// Computes into a new temporary.
  BufferId make(std::string_view name, Arguments arguments, DType dtype, Shape shape,
                const std::string& label);
  BufferId zeros(const Shape& shape, DType dtype, const std::string& label);
  /// Returns a view of a tensor in another shape.
  BufferId view(BufferId of, Shape shape, const std::string& label);
  /// Does the same; returns the tensor itself if it has this shape.
  BufferId seen_as(BufferId x, const Shape& shape, const std::string& label) {
    return buffer(x).shape == shape ? x : view(x, shape, label);
  }
  /// Copies the rows from `begin` on of a tensor seen as a slab, as many as the shape has.
  BufferId part(BufferId of, const graph::Slab& slab, std::int64_t begin, Shape shape,
                const std::string& label);
  /// Packs tensors of one dtype into consecutive flat parts.
  BufferId pack(const std::vector<BufferId>& tensors, DType dtype, const std::string& label);
  /// Joins pieces [before, rows, after] along their rows; one stays as it is.
  BufferId join_rows(const std::vector<BufferId>& pieces, const std::string& label);
  /// Cuts [before, extents, after] of a tensor into consecutive flat parts.
  BufferId cut(BufferId from, const graph::Slab& slab, const Shape& extents,
               const std::string& label);
  /// Inverts cut; returns a view if the flat parts are in tensor order.
  BufferId join(BufferId flat, const graph::Slab& slab, const Shape& extents, Shape shape,
                const std::string& label);
  /// Returns views of consecutive ranges of a flat buffer, with these shapes.
  std::vector<BufferId> unpack(BufferId flat, const std::vector<Shape>& shapes,
                               const std::string& label);

  /// Appends an in-place sum over the group to the transfer lane.
  void all_reduce(BufferId buffer, std::string label);
  /// Appends an exchange of a flat buffer to the transfer lane; `counts` are its other arguments.
  /// Returns its result of `elements` elements. The op may name a method.
  BufferId exchange(std::string_view op, BufferId from, std::vector<Arguments> counts,
                    std::int64_t elements, std::string label);
  /// Appends a send to the peer lane, to run once the buffer is ready.
  InstructionId send(BufferId buffer, Rank to, std::string label);
  /// Appends a receive into a new temporary, to start after compute instruction `after`, if any.
  BufferId receive(Rank from, DType dtype, Shape shape, InstructionId after, std::string label);
  /// Makes the next compute instruction wait for a send, whose buffer is free from then on.
  void wait_for(InstructionId send) { awaited_.push_back(send); }
  std::size_t instructions() const { return program_.instructions.size(); }
  /// Replaces the origins of instructions from this one on that have one (none: removes them).
  void set_origins(std::size_t from, OpId origin);
  /// Returns the last compute instruction so far, or none.
  InstructionId last_computed() const { return last_computed_; }

  /// Sets which part of the whole tensor a persistent buffer is.
  void set_part(BufferId buffer, program::Part part);

  /// Returns the finished program; the last compute instruction that uses a temporary frees it.
  program::DeviceProgram finish();

 private:
  InstructionId append(program::Instruction instruction);
  InstructionId transfer(std::string_view op, BufferId from, std::vector<Arguments> counts,
                         std::vector<BufferId> outputs, std::string label);
  void place_frees();

  /// Returns the instructions that another lane must wait for before it reads a buffer.
  std::vector<InstructionId> writers_of(BufferId buffer) const;

  program::DeviceProgram program_;
  GroupId group_{0};
  std::map<std::string, BufferId> persistent_;  // by name
  std::vector<InstructionId> computed_;         // by buffer: the compute instruction that wrote it
  std::vector<InstructionId> transferred_;      // by buffer: the transfer that summed it
  std::vector<InstructionId> received_;         // by buffer: the receive that gave it
  InstructionId waited_;  // the last transfer that the compute lane waited for
  /// by sending rank: the last receive that the compute lane waited for
  std::map<Rank, InstructionId> waited_from_;
  std::vector<InstructionId> awaited_;  // sends
  InstructionId last_computed_;
};

}  // namespace motley::synth
