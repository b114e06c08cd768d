#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "motley/base/dtype.h"
#include "motley/base/result.h"
#include "motley/data/data_source.h"

namespace motley::data {

/// What a model wants of one input: its name, dtype and shape without the batch dimension.
struct InputSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> sample_shape;
};

/// Layout of a flat token file; width 0: not a token file.
struct StoredTokens {
  std::size_t width = 0;  ///< bytes of a token
  std::int64_t seq = 0;   ///< tokens of a window
};

/// Samples in memory-mapped files, read by index. Reading is thread-safe.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t samples() const = 0;
  virtual std::int64_t sample_bytes(std::size_t input) const = 0;
  /// Copies one sample of one input to `out` (sample_bytes(input) long).
  virtual void read(std::size_t input, std::int64_t sample, std::byte* out) const = 0;
  /// Returns whether the sample can be read: an excerpt (excerpt.h) has only some samples.
  virtual bool has(std::int64_t) const { return true; }

  // Rows as an excerpt stores them, by input. Token inputs overlap and are widened on reading, so a
  // token file stores one raw row for the first input and none for the second.
  virtual StoredTokens stored_tokens() const { return {}; }
  virtual std::int64_t stored_bytes(std::size_t input) const { return sample_bytes(input); }
  virtual void read_stored(std::size_t input, std::int64_t sample, std::byte* out) const {
    read(input, sample, out);
  }
};

/// Opens the data for a model's inputs, in order; not for loaded sources (is_loaded). The name's
/// ending decides the format: .npz, .npy, .safetensors, .excerpt, a folder of .npy files, else a
/// token file. Arrays are matched by name, else by x0, x1, ...; dtype and shape must equal the
/// inputs'. Token files give tokens [i*seq, (i+1)*seq) and, to a second input, the same shifted by
/// one, as i64. Each mismatch is one clear usage error: nothing is converted.
Result<std::unique_ptr<Dataset>> open_dataset(const DataSource& source,
                                              const std::vector<InputSpec>& inputs);

/// Checks that the data exists. Usage error: no such file. Cheap: opens nothing as data.
Result<void> check_readable(const DataSource& source);

std::int64_t sample_bytes(const InputSpec& input);

/// Returns where each input begins, and where the last ends, in memory with `samples` samples of
/// one input after the other: multiples of 64 bytes, as in python/motley/samples.py.
std::vector<std::int64_t> input_offsets(const std::vector<InputSpec>& inputs, std::int64_t samples);

/// The sample at each position of the training sequence: position p = step * global batch + place
/// in the batch. Without shuffling: p modulo samples. With a seed: a permutation of each epoch that
/// depends on seed and epoch only, never on the number of devices.
///
/// The permutation takes no memory: a Feistel network of eight Philox rounds, keyed by seed and
/// epoch, permutes the smallest even-bit range that holds [0, samples), less than four times as
/// large. A result outside is permuted again ("cycle walking": Black and Rogaway, Ciphers with
/// arbitrary finite domains, 2002). at() is pure and takes some hundred nanoseconds.
class SampleOrder {
 public:
  /// Requires samples > 0.
  SampleOrder(std::int64_t samples, std::optional<std::uint64_t> shuffle_seed);
  /// Requires position >= 0.
  std::int64_t at(std::int64_t position) const;

 private:
  std::int64_t samples_;
  std::optional<std::uint64_t> seed_;
};

}  // namespace motley::data
