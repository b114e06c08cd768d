#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "motley/base/result.h"

namespace motley {

/// Reads a whole file as bytes. Usage error when it cannot be read ("PATH: no such file").
Result<std::string> read_file(const std::string& path);

/// Writes PATH.tmp, syncs and renames it, so a reader sees the old file or the whole new one. A
/// full disk is a runtime error that leaves only the old file. `readers` may read it, within the
/// process's mask.
enum class Readers { kAll, kOwner };
Result<void> write_file_atomic(const std::string& path, std::string_view bytes,
                               Readers readers = Readers::kAll);

/// A file written in pieces that appears under its name only when committed (write_file_atomic).
/// Without commit, or after an error, the temporary file is removed and an old file stays.
class AtomicFile {
 public:
  static Result<AtomicFile> create(const std::string& path, Readers readers = Readers::kAll);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  Result<void> write(std::span<const std::byte> bytes);
  /// Syncs and renames. No write may follow.
  Result<void> commit();

 private:
  AtomicFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  void discard();
  tl::unexpected<Error> failed(int error);

  std::string path_;
  int fd_ = -1;
};

/// A file mapped read-only into memory, which shows later writes. Movable.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }
  std::string_view text() const { return {static_cast<const char*>(data_), size_}; }

 private:
  MappedFile(void* data, std::size_t size) : data_(data), size_(size) {}
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace motley
