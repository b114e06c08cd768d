#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "motley/cost/operators/time_source.h"
#include "motley/program/program.h"

namespace motley::cost {

/// Times of a data-parallel program's operators at any batch, for the same operators in any
/// program: an instruction with the cost key of a reference's instruction at some batch takes its
/// time there. So a sharding by samples costs the same as a split of the batch.
///
/// The numbers in a reference's key that change with the batch are on a line through the first and
/// the last batch; a key fits if one batch explains all of them. Example: mm(f32[4,8], f32[8,8]) at
/// 4 samples and mm(f32[16,8], f32[8,8]) at 16: mm(f32[9,8], f32[8,8]) is at 9.
class BatchCurves : public TimeSource {
 public:
  /// Returns seconds and scratch of a references' instruction at a batch (instruction, batch).
  using At = std::function<Answer(std::size_t, double)>;
  /// `references`: the same lowering at one or more batches.
  BatchCurves(const std::vector<program::DeviceProgram>& references, At at);
  std::vector<std::optional<Answer>> times(const program::DeviceProgram& program) const override;

 private:
  /// One operator at all batches.
  struct Family {
    std::size_t instruction = 0;
    std::vector<double> first, slope;  // of the key's numbers: at batch 0, and per sample
  };
  std::optional<Answer> find(const std::string& key) const;
  At at_;
  double least_ = 0, most_ = 0;                                    // smallest and largest batch
  std::unordered_map<std::string, std::vector<Family>> by_words_;  // by the key without numbers
};

}  // namespace motley::cost
