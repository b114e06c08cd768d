#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "motley/base/result.h"
#include "motley/data/data_source.h"
#include "motley/data/dataset.h"
#include "motley/program/program.h"

namespace motley::run {

/// Describes the batches of one program.
struct BatchKind {
  std::int64_t size = 0;                          ///< samples of the global batch
  std::vector<std::vector<std::int64_t>> places;  ///< by rank: in the batch, in program order
};
BatchKind batch_kind(const program::Program& program);

/// Maps each batch to its positions in the sequence of all samples: without end, or in passes from
/// position 0 that consist of batches of the first kind, then one of the second if there is one.
class BatchOrder {
 public:
  /// Makes an endless order that begins with batch `first_batch` at position `first_position`.
  static BatchOrder endless(BatchKind kind, std::int64_t first_batch, std::int64_t first_position);
  /// Makes passes of `whole_batches` batches; `kinds`: one or two.
  static BatchOrder passes(std::vector<BatchKind> kinds, std::int64_t whole_batches);
  /// Makes passes over `samples` samples. A second kind takes what whole batches leave.
  static BatchOrder passes_over(std::vector<BatchKind> kinds, std::int64_t samples);
  /// Returns the batches of one pass; 0: there are no passes.
  std::int64_t batches_in_pass() const;

  const std::vector<BatchKind>& kinds() const { return kinds_; }
  /// Returns the index in kinds() of the batch's kind.
  std::size_t kind_index(std::int64_t batch) const;
  const BatchKind& kind(std::int64_t batch) const { return kinds_[kind_index(batch)]; }
  /// Returns the position of the batch's first sample.
  std::int64_t position(std::int64_t batch) const;
  std::int64_t first_batch() const { return first_batch_; }

 private:
  std::int64_t in_pass(std::int64_t batch) const;
  std::vector<BatchKind> kinds_;
  std::int64_t first_batch_ = 0, first_position_ = 0;
  std::int64_t whole_batches_ = 0;  // per pass; 0: no passes
};

/// Maps positions in the sequence of all samples to epochs and sample numbers. Streams: one epoch.
class SampleNumbers {
 public:
  /// Makes the mapping. `samples`: the source's; -1: a stream. Usage error: the slice is empty.
  static Result<SampleNumbers> make(const data::DataSource& source, std::int64_t samples,
                                    std::optional<std::uint64_t> shuffle);
  std::int64_t epoch(std::int64_t position) const { return order_ ? position / samples_ : 0; }
  std::int64_t number(std::int64_t position) const {
    return order_ ? begin_ + order_->at(position) : position;
  }
  /// Returns the samples of an epoch; -1: a stream.
  std::int64_t samples() const { return samples_; }

 private:
  std::int64_t begin_ = 0, samples_ = -1;
  std::optional<data::SampleOrder> order_;
};

}  // namespace motley::run
