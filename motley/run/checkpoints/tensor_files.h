#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/safetensors.h"
#include "motley/program/program.h"

namespace motley::run {

/// The place of a rank's part in its tensor.
struct TensorPlace {
  std::vector<std::int64_t> shape;  ///< of the whole tensor
  program::Part part;
  bool operator==(const TensorPlace&) const = default;
};

/// A tensor as one rank saves it: whole, or its part.
struct SavedTensor {
  NamedTensor named;
  std::optional<TensorPlace> place;
};

/// Writes a safetensors file. Its metadata key `motley.parts` lists the tensors that are parts
/// (docs/formats/checkpoint.md); `metadata` is added.
Result<void> write_tensor_file(const std::string& path, std::span<const SavedTensor> tensors,
                               std::map<std::string, std::string> metadata = {});

struct TensorFile {
  std::string path;
  const Safetensors* tensors = nullptr;
};

/// Tensors of several files, whole or in parts cut in any way. Views the files, which outlive it.
class TensorFiles {
 public:
  /// Whether the files hold all of their tensors or perhaps only parts.
  enum class Extent { kAll, kSome };

  TensorFiles() = default;
  /// Opens files. Usage errors (run.tensor-parts), with file and tensor: inconsistent metadata, a
  /// duplicate tensor, or parts that do not make up the whole.
  static Result<TensorFiles> make(std::span<const TensorFile> files, Extent extent = Extent::kAll);

  bool has(const std::string& name) const { return tensors_.contains(name); }
  std::vector<std::string> names() const;
  /// Fills `target`, the memory of `buffer`, with the buffer's part of its tensor. Usage errors:
  /// some of it is missing (run.missing-tensor); dtype or shape differs (run.wrong-tensor).
  Result<void> read(const program::Buffer& buffer, std::span<std::byte> target) const;
  /// Replaces tensors by those of `others` of the same name plus `suffix`. `names`: names there.
  TensorFiles with_others(const TensorFiles& others, const std::string& suffix,
                          const std::map<std::string, std::string>& names) const;
  /// Returns dtype and shape of an existing tensor; also its bytes, unless it is in parts.
  TensorView view(const std::string& name) const;
  /// Writes the tensors in `names` (default: all) into one file. Needs memory for those in parts.
  Result<void> write_whole(const std::string& path) const { return write_whole(path, names()); }
  Result<void> write_whole(const std::string& path, std::span<const std::string> names) const;
  /// Tells whether two existing tensors are identical, dtype and shape included.
  bool are_equal(const std::string& one, const std::string& other) const;

 private:
  /// Some rows of a tensor viewed as [before, extent, after].
  struct Rows {
    program::Part part;
    std::int64_t count = 0;
    std::span<const std::byte> bytes;
  };
  struct Tensor {
    DType dtype = DType::kF32;
    std::vector<std::int64_t> shape;
    std::vector<Rows> rows;  ///< sorted by begin; all of one view of the tensor
  };

  Result<void> add(const TensorFile& file);
  static Result<void> verify(const std::string& name, Tensor& tensor);
  static bool has_rows(const Tensor& tensor, const program::Part& part, std::int64_t count);
  static void copy(const Tensor& tensor, const program::Part& part, std::int64_t count,
                   std::byte* target);
  static std::vector<std::byte> join(const Tensor& tensor);
  /// Returns a tensor with its bytes; `joined` holds the bytes of one that is in parts.
  TensorView whole(const std::string& name, std::vector<std::byte>& joined) const;

  std::map<std::string, Tensor> tensors_;
};

}  // namespace motley::run
