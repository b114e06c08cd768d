#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/program/program.h"

namespace motley::synth {

// What passes that count squares of gradients share (gradient_squares.h).

/// The list at a position of an instruction's arguments; null: there is none.
const program::ArgumentList* list_at(const program::Instruction& instruction, std::size_t position);
/// None where the argument is no buffer.
BufferId buffer_of(const program::Argument& argument);

/// Usage error `synth.squares`.
tl::unexpected<Error> refuse_squares(const program::DeviceProgram& program,
                                     const std::string& what);

/// What an update says of one gradient.
struct Updated {
  BufferId second_moment;           ///< of adam and adamw
  program::ArgumentList constants;  ///< beta2, eps of these
};

/// By gradient, of all updates. Usage error where gradients have a loss scale.
Result<std::map<BufferId, Updated>> find_updated(const program::DeviceProgram& program);

/// Square sums of tensors, in as many instructions as there are sorts of them.
class SquareWriter {
 public:
  explicit SquareWriter(program::DeviceProgram& program) : program_(program) {}

  void add(BufferId gradient, const Updated& updated);
  bool is_empty() const { return counted_.empty(); }
  /// The instructions, for whose results the program gets buffers; `sums` gets these.
  std::vector<program::Instruction> write(program::ArgumentList& sums);

 private:
  /// Gradients that are counted together.
  struct Counted {
    program::ArgumentList gradients, moments, constants;
  };
  static void put(BufferId gradient, const Updated& updated, Counted& into);

  program::DeviceProgram& program_;
  std::vector<Counted> counted_;
};

/// All that a device counts in a step.
struct Squares {
  std::vector<program::ArgumentList> pieces;  ///< sums of its terms of gradients, by piece
  program::ArgumentList whole;                ///< sums of gradients
  std::vector<std::int64_t> samples;          ///< of each piece
};

/// Has the last instruction say them. Usage error where that is no report.
Result<void> report_squares(const Squares& squares, program::DeviceProgram& program);

/// Puts instructions before those that were there, by position, and waits along.
void insert_before(std::map<std::size_t, std::vector<program::Instruction>> before,
                   program::DeviceProgram& program);

}  // namespace motley::synth
