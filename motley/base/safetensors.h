#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/dtype.h"
#include "motley/base/file.h"
#include "motley/base/result.h"

namespace motley {

/// One tensor in a safetensors file: row-major little-endian bytes.
struct TensorView {
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

/// A safetensors file: u64 header length, JSON header, data. Validates everything before use:
/// header length (<= 100 MB), JSON, dtypes, contiguous offsets without holes or overlap, sizes.
class Safetensors {
 public:
  /// Maps the file. Views stay valid while this object lives.
  static Result<Safetensors> open(const std::string& path);
  /// Reads from memory that must outlive the object; messages use `name`.
  static Result<Safetensors> parse(std::span<const std::byte> bytes, const std::string& name);

  const std::map<std::string, TensorView>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  std::vector<MappedFile> file_;  // empty or one
  std::map<std::string, TensorView> tensors_;
  std::map<std::string, std::string> metadata_;
};

struct NamedTensor {
  std::string name;
  TensorView tensor;
};

/// Writes a safetensors file atomically (see write_file_atomic): header padded to 8 bytes, tensors
/// ordered by element size descending then by name, {"format": "pt"} added to the metadata. Streams
/// without a second copy of the data. A full disk is a runtime error that keeps the old file.
Result<void> write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                               const std::map<std::string, std::string>& metadata);

}  // namespace motley
