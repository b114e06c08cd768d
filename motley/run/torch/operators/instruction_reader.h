#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/program/program.h"

namespace motley::run {

/// Reads the arguments of an instruction of our own by position. The first argument of another
/// kind than wanted is remembered as an error; until it is asked for, reads give neutral values.
class InstructionReader {
 public:
  InstructionReader(const program::DeviceProgram& program, const program::Instruction& instruction);

  int buffer(std::size_t argument);           ///< id of a buffer
  int optional_buffer(std::size_t argument);  ///< id, or -1 for none
  std::vector<int> buffers(std::size_t argument);
  std::int64_t integer(std::size_t argument);
  double number(std::size_t argument);  ///< an integer is taken for a float
  std::vector<double> numbers(std::size_t argument);
  std::optional<double> optional_number(std::size_t argument);
  bool boolean(std::size_t argument);
  std::string text(std::size_t argument);

  int output(std::size_t position);
  std::vector<int> outputs() const;
  /// The buffer behind an id that buffer() or output() gave.
  const program::Buffer& about(int id) const;

  const program::Instruction& instruction() const { return instruction_; }
  /// "argument 2 of motley::dropout: found "x", wanted a number"
  Result<void> status() const;

 private:
  const program::Argument* find(std::size_t argument, const std::string& wanted);
  void refuse(std::size_t argument, const std::string& wanted);

  const program::DeviceProgram& program_;
  const program::Instruction& instruction_;
  std::optional<std::string> fault_;
};

}  // namespace motley::run
