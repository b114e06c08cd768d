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

/// Some of so many samples: a bit each.
class SampleSet {
 public:
  explicit SampleSet(std::int64_t samples)
      : samples_(samples), bits_(static_cast<std::size_t>((samples + 63) / 64)) {}
  /// 0 <= sample < samples()
  void add(std::int64_t sample);
  bool has(std::int64_t sample) const;
  std::int64_t samples() const { return samples_; }
  std::int64_t count() const { return count_; }
  /// The first of the set that is not below `from`; samples(): none.
  std::int64_t next(std::int64_t from) const;

 private:
  std::int64_t samples_, count_ = 0;
  std::vector<std::uint64_t> bits_;
};

/// Some samples of a dataset as a file of their own: what a machine whose ranks read no others is
/// given. open_dataset takes it for the whole one (by its name's ending, kExcerptEnding): samples
/// have the same numbers, and those that it lacks it cannot give (Dataset::has). It holds
///
///   {"schema": "motley.excerpt/1", ...}  one line: samples, kept, inputs, bytes of a row of each
///   i64[kept]                            their numbers, ascending
///   [kept, bytes of a row]               by input, as the dataset has them; of tokens one row, raw
///
/// each but the first beginning at a multiple of 64 bytes.
class Excerpt {
 public:
  /// What it is given must outlive it.
  Excerpt(const Dataset& whole, const std::vector<InputSpec>& inputs, const SampleSet& kept);
  /// Of the file.
  std::int64_t bytes() const { return bytes_; }
  /// Gives the file to `sink` piece by piece; no piece is larger than a MiB or a sample.
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
/// Usage errors (data.excerpt): it is none, is damaged, or of other inputs.
Result<std::unique_ptr<Dataset>> open_excerpt(const std::string& path,
                                              const std::vector<InputSpec>& inputs);

}  // namespace motley::data
