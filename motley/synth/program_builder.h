#pragma once

#include <string>
#include <vector>

#include "motley/program/program.h"

namespace motley::synth {

/// Builds one device's program instruction by instruction: gives ids, makes the lanes wait for each
/// other, and at the end says where each temporary is freed.
class ProgramBuilder {
 public:
  explicit ProgramBuilder(program::DeviceProgram start) : program_(std::move(start)) {}

  BufferId add_buffer(program::Buffer buffer);
  /// A temporary; `base` is what it is a view of (its root is looked up), or none.
  BufferId add_temporary(DType dtype, std::vector<std::int64_t> shape, BufferId base = {});
  /// Valid until the next buffer is added.
  const program::Buffer& buffer(BufferId id) const { return program_.buffer(id); }

  /// Appends to the compute lane; waits for the transfers that give its operands.
  void compute(program::Instruction instruction);
  /// Appends a sum over the group, in place, to the transfer lane.
  void all_reduce(BufferId buffer, std::string label);

  /// Appends an exchange of a flat buffer to the transfer lane; `counts` are its other arguments.
  void exchange(std::string op, BufferId from, std::vector<program::ArgumentList> counts,
                BufferId to, std::string label);
  /// Says which part of the whole tensor a persistent buffer is.
  void set_part(BufferId buffer, program::Part part);

  /// The finished program, each temporary freed by the last compute instruction that touches it.
  program::DeviceProgram finish();

 private:
  InstructionId append(program::Instruction instruction);
  void place_frees();

  program::DeviceProgram program_;
  std::vector<InstructionId> computed_;     // by buffer: the compute instruction that wrote it
  std::vector<InstructionId> transferred_;  // by buffer: the transfer that summed it
  InstructionId waited_;                    // the last transfer that the compute lane waited for
};

}  // namespace motley::synth
