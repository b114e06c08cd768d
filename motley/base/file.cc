#include "motley/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "motley/base/descriptor.h"

namespace motley {
namespace {

/// Returns the text of an errno in our style: lower case, plain words for the frequent ones.
std::string reason(int error) {
  if (error == ENOENT) return "no such file";
  if (error == ENOSPC) return "no space left on the disk, free some and run again";
  std::string text = std::strerror(error);
  if (text.size() > 1 && text[1] >= 'a' && text[1] <= 'z')
    text[0] = static_cast<char>(text[0] | 32);
  return text;
}

tl::unexpected<Error> read_failed(const std::string& path, int error) {
  return usage_error(error == ENOENT ? "file.missing" : "file.read", path + ": " + reason(error));
}

/// Syncs the folder, so that it lists the new name after a crash too.
void sync_folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const Descriptor fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.number() >= 0) ::fsync(fd.number());
}

}  // namespace

Result<std::string> read_file(const std::string& path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.number() < 0) return read_failed(path, errno);
  struct stat status {};
  if (::fstat(fd.number(), &status) != 0) return read_failed(path, errno);
  std::string bytes;
  std::size_t used = 0;
  // One byte more than the size, so that a regular file ends in the first round.
  bytes.resize(static_cast<std::size_t>(std::max<off_t>(status.st_size, 4095)) + 1);
  while (true) {
    if (used == bytes.size()) bytes.resize(2 * bytes.size());
    const ssize_t got = ::read(fd.number(), bytes.data() + used, bytes.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return read_failed(path, errno);
    if (got == 0) break;
    used += static_cast<std::size_t>(got);
  }
  bytes.resize(used);
  return bytes;
}

Result<AtomicFile> AtomicFile::create(const std::string& path, Readers readers) {
  const std::string temporary = path + ".tmp";
  constexpr mode_t kOwnerAlone = S_IRUSR | S_IWUSR;
  const mode_t mode = readers == Readers::kOwner ? kOwnerAlone : 0666;
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  // A file that a killed process left keeps its mode.
  if (fd >= 0 && readers == Readers::kOwner) ::fchmod(fd, kOwnerAlone);
  if (fd >= 0) return AtomicFile(path, fd);
  const int error = errno;
  const bool wrong_path = error == ENOENT || error == ENOTDIR || error == EACCES || error == EISDIR;
  return tl::make_unexpected(
      Error{wrong_path ? ErrorKind::kUsage : ErrorKind::kRuntime, "file.write",
            fmt::format("{}: cannot be written: {}", path,
                        error == ENOENT ? "no such folder" : reason(error))});
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  return *this;
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() {
  if (fd_ < 0) return;
  ::close(std::exchange(fd_, -1));
  ::unlink((path_ + ".tmp").c_str());
}

tl::unexpected<Error> AtomicFile::failed(int error) {
  discard();
  return runtime_error("file.write",
                       fmt::format("{}: cannot be written: {}", path_, reason(error)));
}

Result<void> AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd_, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return failed(errno);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  return {};
}

Result<void> AtomicFile::commit() {
  if (::fsync(fd_) != 0) return failed(errno);
  const std::string temporary = path_ + ".tmp";
  if (::rename(temporary.c_str(), path_.c_str()) != 0) return failed(errno);
  ::close(std::exchange(fd_, -1));
  sync_folder_of(path_);
  return {};
}

Result<void> write_file_atomic(const std::string& path, std::string_view bytes, Readers readers) {
  MOTLEY_ASSIGN(AtomicFile file, AtomicFile::create(path, readers));
  MOTLEY_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(bytes))));
  return file.commit();
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.number() < 0) return read_failed(path, errno);
  struct stat status {};
  if (::fstat(fd.number(), &status) != 0) return read_failed(path, errno);
  if (S_ISDIR(status.st_mode)) return read_failed(path, EISDIR);
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return MappedFile(nullptr, 0);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.number(), 0);
  if (data == MAP_FAILED) return read_failed(path, errno);
  return MappedFile(data, size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace motley
