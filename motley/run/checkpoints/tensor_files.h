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

/// Where a rank's part lies in its tensor.
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

/// A safetensors file whose metadata (`motley.parts`, docs/formats/checkpoint.md) tells which of
/// its tensors are parts; `metadata` is added.
Result<void> write_tensor_file(const std::string& path, std::span<const SavedTensor> tensors,
                               std::map<std::string, std::string> metadata = {});

/// An open file with its path, for messages.
struct TensorFile {
  std::string path;
  const Safetensors* tensors = nullptr;
};

/// The tensors of some files together: whole ones, and those of which several files have parts, cut
/// in any way. Reads any other part of each. Views of the files' memory, which must outlive it.
class TensorFiles {
 public:
  /// Are the files all there is of their tensors, or may they have parts alone?
  enum class Extent { kAll, kSome };

  TensorFiles() = default;
  /// Usage errors (run.tensor-parts), which name file and tensor: metadata that does not fit, a
  /// tensor twice, parts that do not make up the whole.
  static Result<TensorFiles> make(std::span<const TensorFile> files, Extent extent = Extent::kAll);

  bool has(const std::string& name) const { return tensors_.contains(name); }
  std::vector<std::string> names() const;
  /// Fills `target`, the memory of `buffer`, with the buffer's part of the tensor of its name.
  /// Usage errors: there is none, or not all of that part (run.missing-tensor), another dtype or
  /// shape (run.wrong-tensor).
  Result<void> read(const program::Buffer& buffer, std::span<std::byte> target) const;
  /// The same, but for those of which `others` has one that is called like it with `suffix`: they
  /// are that one. `names`: what a tensor is called there, if not as here.
  TensorFiles with_others(const TensorFiles& others, const std::string& suffix,
                          const std::map<std::string, std::string>& names) const;
  /// Dtype and shape of a tensor that is there; its bytes, unless it is in parts.
  TensorView view(const std::string& name) const;
  /// Those with `names` (default: all), in one file. Needs memory for the ones that are in parts.
  Result<void> write_whole(const std::string& path) const { return write_whole(path, names()); }
  Result<void> write_whole(const std::string& path, std::span<const std::string> names) const;
  /// Are two tensors that are there the same to the bit, dtype and shape included?
  bool are_equal(const std::string& one, const std::string& other) const;

 private:
  /// Some rows of a tensor seen as [before, extent, after].
  struct Rows {
    program::Part part;
    std::int64_t count = 0;
    std::span<const std::byte> bytes;
  };
  struct Tensor {
    DType dtype = DType::kF32;
    std::vector<std::int64_t> shape;
    std::vector<Rows> rows;  ///< by begin; all of one view of the tensor
  };

  Result<void> add(const TensorFile& file);
  static Result<void> verify(const std::string& name, Tensor& tensor);
  static bool has_rows(const Tensor& tensor, const program::Part& part, std::int64_t count);
  static void copy(const Tensor& tensor, const program::Part& part, std::int64_t count,
                   std::byte* target);
  /// All rows together.
  static std::vector<std::byte> join(const Tensor& tensor);
  /// A tensor with its bytes; `joined` keeps those of one that is in parts.
  TensorView whole(const std::string& name, std::vector<std::byte>& joined) const;

  std::map<std::string, Tensor> tensors_;
};

}  // namespace motley::run
