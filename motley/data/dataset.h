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

namespace motley::data {

/// What a model wants of one input: its name, dtype and shape without the batch dimension.
struct InputSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> sample_shape;
};

/// Where the data is. `token_width` and `seq` are for flat token files only.
struct DataSource {
  std::string path;      ///< .npz, .safetensors, or a flat token file
  int token_width = 2;   ///< bytes of a token in a flat file: 2 or 4, unsigned
  std::int64_t seq = 0;  ///< window length of a flat token file
};

/// Samples in memory-mapped files, read by index. Thread-safe for reading.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t samples() const = 0;
  /// Bytes of one sample of input `input`.
  virtual std::int64_t sample_bytes(std::size_t input) const = 0;
  /// Copies one sample of one input to `out` (sample_bytes(input) long).
  virtual void read(std::size_t input, std::int64_t sample, std::byte* out) const = 0;
};

/// Opens the data for a model's inputs, in order. Arrays are matched by name, else by x0, x1, ...;
/// dtype and shape must equal the inputs'. Token files give two inputs: tokens [i*seq, (i+1)*seq)
/// and the same shifted by one, as i64. Each mismatch is one clear usage error.
Result<std::unique_ptr<Dataset>> open_dataset(const DataSource& source,
                                              const std::vector<InputSpec>& inputs);

/// Which sample stands at a position of the training sequence: position p = step * global batch +
/// place in the batch. Without shuffling: p modulo samples. With a seed: a permutation of each
/// epoch that depends on seed and epoch only. Never on the number of devices.
class SampleOrder {
 public:
  SampleOrder(std::int64_t samples, std::optional<std::uint64_t> shuffle_seed);
  std::int64_t at(std::int64_t position) const;

 private:
  std::int64_t samples_;
  std::optional<std::uint64_t> seed_;
};

}  // namespace motley::data
