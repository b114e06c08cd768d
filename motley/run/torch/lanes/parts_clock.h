#pragma once

#include <cstddef>
#include <vector>

#include "motley/program/step_parts.h"
#include "motley/run/torch/lanes/executor.h"

namespace motley::run {

/// Computes a step's parts from the lanes' records. The compute lane marks the instructions
/// selected by is_marked; the transfer lane writes into `exchanges`. Read between steps.
class PartsClock {
 public:
  explicit PartsClock(const program::DeviceProgram& program);
  bool is_marked(int instruction) const {
    return is_marked_[static_cast<std::size_t>(instruction)];
  }
  /// Records the device's working time up to the end of the instruction.
  void mark(int instruction, double worked_s) {
    worked_[static_cast<std::size_t>(instruction)] = worked_s;
  }
  std::vector<double>* exchanges() { return &exchanges_; }
  StepParts parts() const;

 private:
  program::StepShape shape_;
  std::vector<bool> is_marked_;  // by instruction
  std::vector<double> worked_;   // by instruction; for marked ones
  std::vector<double> exchanges_;
};

}  // namespace motley::run
