#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "motley/cost/operators/time_source.h"
#include "motley/program/program.h"

namespace motley::cost {

/// Times of the operators of a data-parallel program at batches between those that were measured,
/// for the same operators wherever else they stand: an instruction of another program that is, by
/// its cost key, one of the references' at some batch takes what that takes there. So a sharding by
/// samples, whole or of some operators, costs what a split of the batch costs.
///
/// Of the references' keys all numbers that change with the batch do so on a line through the first
/// and the last one; a key fits where one batch explains all of them. Example: mm(f32[4,8],
/// f32[8,8]) at 4 samples and mm(f32[16,8], f32[8,8]) at 16: mm(f32[9,8], f32[8,8]) is its 9.
class BatchCurves : public TimeSource {
 public:
  /// Seconds and scratch of an instruction of the references at a batch (instruction, batch).
  using At = std::function<Answer(std::size_t, double)>;
  /// `references`: the same lowering at one batch or more.
  BatchCurves(const std::vector<program::DeviceProgram>& references, At at);
  std::vector<std::optional<Answer>> times(const program::DeviceProgram& program) const override;

 private:
  /// One operator at all batches.
  struct Family {
    std::size_t instruction = 0;
    std::vector<double> first, slope;  // of the key's numbers: at batch 0, and by sample
  };
  std::optional<Answer> find(const std::string& key) const;
  At at_;
  double least_ = 0, most_ = 0;                                    // batches
  std::unordered_map<std::string, std::vector<Family>> by_words_;  // of the key, without numbers
};

}  // namespace motley::cost
