#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/program/program.h"

namespace motley::run {

/// Reads the arguments of one of our own instructions by position. Remembers the first argument of
/// a wrong kind as an error; reads return neutral values meanwhile.
class InstructionReader {
 public:
  InstructionReader(const program::DeviceProgram& program, const program::Instruction& instruction);

  int buffer(std::size_t argument);           ///< id of a buffer
  int optional_buffer(std::size_t argument);  ///< id, or -1 for none
  std::vector<int> buffers(std::size_t argument);
  std::int64_t integer(std::size_t argument);
  double number(std::size_t argument);  ///< accepts an integer
  std::vector<double> numbers(std::size_t argument);
  std::optional<double> optional_number(std::size_t argument);
  bool boolean(std::size_t argument);
  std::string text(std::size_t argument);

  int output(std::size_t position);
  std::vector<int> outputs() const;
  /// Returns the buffer of an id from buffer() or output().
  const program::Buffer& about(int id) const;

  const program::Instruction& instruction() const { return instruction_; }
  /// Returns "argument 2 of motley::dropout: found "x", wanted a number".
  Result<void> status() const;

 private:
  const program::Argument* find(std::size_t argument, const std::string& wanted);
  void refuse(std::size_t argument, const std::string& wanted);

  const program::DeviceProgram& program_;
  const program::Instruction& instruction_;
  std::optional<std::string> fault_;
};

}  // namespace motley::run
