#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "motley/base/result.h"
#include "motley/data/data_source.h"
#include "motley/data/dataset.h"
#include "motley/program/program.h"

namespace motley::run {

/// Batches that one program takes.
struct BatchKind {
  std::int64_t size = 0;                          ///< samples of the global batch
  std::vector<std::vector<std::int64_t>> places;  ///< that each rank needs, in its program's order
};
BatchKind batch_kind(const program::Program& program);

/// Which positions of the sequence of all samples each batch takes: batch after batch without end,
/// or passes of so many batches of the first kind and, where there is a second, one of that, after
/// which the positions begin again. Pure.
class BatchOrder {
 public:
  /// Without end, from batch `first_batch` on, which begins at `first_position`.
  static BatchOrder endless(BatchKind kind, std::int64_t first_batch, std::int64_t first_position);
  /// Passes; `kinds`: one or two.
  static BatchOrder passes(std::vector<BatchKind> kinds, std::int64_t whole_batches);
  /// Passes over so many samples: of two kinds the second takes what whole batches leave.
  static BatchOrder passes_over(std::vector<BatchKind> kinds, std::int64_t samples);
  /// In a pass; 0: there are none.
  std::int64_t batches_in_pass() const;

  const std::vector<BatchKind>& kinds() const { return kinds_; }
  /// Which of them a batch is of.
  std::size_t kind_index(std::int64_t batch) const;
  const BatchKind& kind(std::int64_t batch) const { return kinds_[kind_index(batch)]; }
  /// Position of the batch's first sample.
  std::int64_t position(std::int64_t batch) const;
  std::int64_t first_batch() const { return first_batch_; }

 private:
  std::int64_t in_pass(std::int64_t batch) const;
  std::vector<BatchKind> kinds_;
  std::int64_t first_batch_ = 0, first_position_ = 0;
  std::int64_t whole_batches_ = 0;  // of a pass; 0: there are none
};

/// Positions of the sequence of all samples as epochs and numbers of a source's samples. Streams
/// have one epoch, in their own order.
class SampleNumbers {
 public:
  /// `samples`: of the source; -1: a stream. Usage error: its slice has none.
  static Result<SampleNumbers> make(const data::DataSource& source, std::int64_t samples,
                                    std::optional<std::uint64_t> shuffle);
  std::int64_t epoch(std::int64_t position) const { return order_ ? position / samples_ : 0; }
  std::int64_t number(std::int64_t position) const {
    return order_ ? begin_ + order_->at(position) : position;
  }
  /// In an epoch; -1: of a stream.
  std::int64_t samples() const { return samples_; }

 private:
  std::int64_t begin_ = 0, samples_ = -1;
  std::optional<data::SampleOrder> order_;
};

}  // namespace motley::run
