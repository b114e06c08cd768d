#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/file.h"
#include "motley/base/result.h"
#include "motley/base/safetensors.h"

namespace motley::data {

/// Parses a .npy array: magic, version 1 to 3, header, data. Refuses Fortran order, big-endian,
/// structured and object types, and wrong sizes. The view points into `bytes`.
Result<TensorView> parse_npy(std::span<const std::byte> bytes, const std::string& name);

/// A .npz file: a zip archive (zip64 too) of .npy arrays, stored or deflated. Opening reads only
/// the directory; encrypted or otherwise compressed members are refused when read.
class Npz {
 public:
  /// Maps the file. Views stay valid while this object lives.
  static Result<Npz> open(const std::string& path);
  /// Reads from memory that must outlive the object.
  static Result<Npz> parse(std::span<const std::byte> bytes, const std::string& name);

  /// Returns the sorted names of the arrays, without ".npy" and other members.
  std::vector<std::string> names() const;
  bool has(std::string_view name) const { return members_.find(name) != members_.end(); }
  /// Returns one array: a view of the file if stored, else inflated once and kept. Verifies
  /// checksums, of stored arrays only up to kCheckedBytes, because it reads them all. Requires
  /// has(name).
  Result<TensorView> array(std::string_view name);

  static constexpr std::uint64_t kCheckedBytes = std::uint64_t{64} << 20;

 private:
  struct Member {
    std::uint16_t method = 0, flags = 0;
    std::uint32_t checksum = 0;
    std::uint64_t stored_size = 0, size = 0, offset = 0;
  };
  friend class ZipDirectory;

  Result<std::span<const std::byte>> contents(const std::string& name, const Member& member);
  Result<std::span<const std::byte>> inflated(const std::string& name, const Member& member,
                                              std::span<const std::byte> stored);

  std::string name_;
  std::vector<MappedFile> file_;  // empty or one
  std::span<const std::byte> bytes_;
  std::map<std::string, Member, std::less<>> members_;
  std::map<std::string, std::unique_ptr<std::byte[]>, std::less<>> inflated_;
};

}  // namespace motley::data
