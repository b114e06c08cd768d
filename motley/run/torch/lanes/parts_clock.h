#pragma once

#include <cstddef>
#include <vector>

#include "motley/program/step_parts.h"
#include "motley/run/torch/lanes/executor.h"

namespace motley::run {

/// Puts a step's parts together from what the lanes saw. The compute lane marks the instructions
/// that is_marked names, the transfer lane writes into `exchanges`; read between steps.
class PartsClock {
 public:
  explicit PartsClock(const program::DeviceProgram& program);
  bool is_marked(int instruction) const {
    return is_marked_[static_cast<std::size_t>(instruction)];
  }
  /// The device had worked for so long when the instruction was done.
  void mark(int instruction, double worked_s) {
    worked_[static_cast<std::size_t>(instruction)] = worked_s;
  }
  /// Seconds that each instruction of the transfer lane took.
  std::vector<double>* exchanges() { return &exchanges_; }
  StepParts parts() const;

 private:
  program::StepShape shape_;
  std::vector<bool> is_marked_;  // by instruction
  std::vector<double> worked_;   // by instruction; of those that are marked
  std::vector<double> exchanges_;
};

}  // namespace motley::run
