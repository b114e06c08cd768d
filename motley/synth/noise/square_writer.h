#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/program/program.h"

namespace motley::synth {

// Shared by the passes that count squares of gradients (gradient_squares.h).

/// Returns the list at a position of an instruction's arguments, or null if there is none.
const program::ArgumentList* list_at(const program::Instruction& instruction, std::size_t position);
/// Returns none if the argument is no buffer.
BufferId buffer_of(const program::Argument& argument);

tl::unexpected<Error> refuse_squares(const program::DeviceProgram& program,
                                     const std::string& what);

/// What an update instruction holds for one gradient.
struct Updated {
  BufferId second_moment;           ///< of adam and adamw
  program::ArgumentList constants;  ///< beta2, eps of adam and adamw
};

/// Finds the updates of all gradients, by gradient. Usage error if gradients have a loss scale.
Result<std::map<BufferId, Updated>> find_updated(const program::DeviceProgram& program);

/// Writes square sums of tensors, with one instruction per sort of tensor.
class SquareWriter {
 public:
  explicit SquareWriter(program::DeviceProgram& program) : program_(program) {}

  void add(BufferId gradient, const Updated& updated);
  bool is_empty() const { return counted_.empty(); }
  /// Returns the instructions; adds result buffers to the program, and appends these to `sums`.
  std::vector<program::Instruction> write(program::ArgumentList& sums);

 private:
  struct Counted {
    program::ArgumentList gradients, moments, constants;
  };
  static void put(BufferId gradient, const Updated& updated, Counted& into);

  program::DeviceProgram& program_;
  std::vector<Counted> counted_;
};

/// All sums that a device counts in a step.
struct Squares {
  std::vector<program::ArgumentList> pieces;  ///< sums of its terms of gradients, by piece
  program::ArgumentList whole;                ///< sums of gradients
  std::vector<std::int64_t> samples;          ///< of each piece
};

/// Adds the sums to the last instruction. Usage error if that is no report.
Result<void> report_squares(const Squares& squares, program::DeviceProgram& program);

/// Inserts instructions before the given positions and adjusts waits.
void insert_before(std::map<std::size_t, std::vector<program::Instruction>> before,
                   program::DeviceProgram& program);

}  // namespace motley::synth
