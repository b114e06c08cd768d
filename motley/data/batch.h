#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "motley/data/dataset.h"

namespace motley::data {

/// The samples of one step that one rank needs, in the order of its program.
class Batch {
 public:
  virtual ~Batch() = default;
  virtual std::int64_t samples() const = 0;
  virtual std::int64_t sample_bytes(std::size_t input) const = 0;
  /// Copies one input of the sample at `place`, 0 <= place < samples(), to `out`.
  virtual void read(std::size_t input, std::int64_t place, std::byte* out) const = 0;
};

class DatasetBatch final : public Batch {
 public:
  /// The dataset must outlive it.
  DatasetBatch(const Dataset& dataset, std::vector<std::int64_t> numbers)
      : dataset_(&dataset), numbers_(std::move(numbers)) {}
  std::int64_t samples() const override { return static_cast<std::int64_t>(numbers_.size()); }
  std::int64_t sample_bytes(std::size_t input) const override {
    return dataset_->sample_bytes(input);
  }
  void read(std::size_t input, std::int64_t place, std::byte* out) const override {
    dataset_->read(input, numbers_[static_cast<std::size_t>(place)], out);
  }

 private:
  const Dataset* dataset_;
  std::vector<std::int64_t> numbers_;
};

}  // namespace motley::data
