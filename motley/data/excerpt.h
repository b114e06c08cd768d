#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/result.h"
#include "motley/data/dataset.h"

namespace motley::data {

/// A set of samples, with one bit each.
class SampleSet {
 public:
  explicit SampleSet(std::int64_t samples)
      : samples_(samples), bits_(static_cast<std::size_t>((samples + 63) / 64)) {}
  /// Requires 0 <= sample < samples().
  void add(std::int64_t sample);
  bool has(std::int64_t sample) const;
  std::int64_t samples() const { return samples_; }
  std::int64_t count() const { return count_; }
  /// Returns the first member >= `from`; samples() if there is none.
  std::int64_t next(std::int64_t from) const;

 private:
  std::int64_t samples_, count_ = 0;
  std::vector<std::uint64_t> bits_;
};

/// Some samples of a dataset in a file, for a machine whose ranks read no others. open_dataset
/// opens it instead (kExcerptEnding). Samples keep their numbers; Dataset::has tells which exist.
/// Contents:
///
///   {"schema": "motley.excerpt/1", ...}  one line: samples, kept, inputs, bytes of a row of each
///   i64[kept]                            sample numbers, ascending
///   [kept, bytes of a row]               per input, as in the dataset; tokens: one row, raw
///
/// Each part but the first begins at a multiple of 64 bytes.
class Excerpt {
 public:
  /// The arguments must outlive it.
  Excerpt(const Dataset& whole, const std::vector<InputSpec>& inputs, const SampleSet& kept);
  std::int64_t bytes() const { return bytes_; }
  /// Passes the file to `sink` in pieces of at most a MiB or one sample.
  using Sink = std::function<Result<void>(std::string_view piece)>;
  Result<void> write(const Sink& sink) const;

 private:
  const Dataset& whole_;
  std::vector<InputSpec> inputs_;
  const SampleSet& kept_;
  std::string header_;
  std::int64_t bytes_ = 0;
};

inline constexpr std::string_view kExcerptEnding = ".excerpt";
/// Usage errors (data.excerpt): not an excerpt, damaged, or of other inputs.
Result<std::unique_ptr<Dataset>> open_excerpt(const std::string& path,
                                              const std::vector<InputSpec>& inputs);

}  // namespace motley::data
