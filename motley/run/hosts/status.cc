#include "motley/run/hosts/status.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <new>
#include <utility>

namespace motley::run {
namespace {

static_assert(std::atomic<std::int64_t>::is_always_lock_free,
              "a status record is shared between processes");

Result<StatusRecord*> map_record(const std::string& path, int flags) {
  const int file = ::open(path.c_str(), flags | O_RDWR | O_CLOEXEC, 0644);
  if (file < 0)
    return runtime_error("run.status", fmt::format("{}: {}", path, std::strerror(errno)));
  struct stat state {};
  const bool writer = (flags & O_CREAT) != 0;
  // Reserves space now: a full disk must not cause a SIGBUS at a later store.
  int fault = writer ? ::posix_fallocate(file, 0, sizeof(StatusRecord)) : 0;
  if (!writer && (::fstat(file, &state) != 0 || state.st_size < off_t(sizeof(StatusRecord))))
    fault = EINVAL;
  void* memory = MAP_FAILED;
  if (fault == 0) {
    memory = ::mmap(nullptr, sizeof(StatusRecord), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) fault = errno;
  }
  ::close(file);
  if (fault != 0)
    return runtime_error("run.status", fmt::format("{}: {}", path, std::strerror(fault)));
  return static_cast<StatusRecord*>(memory);
}

}  // namespace

std::string status_path(const std::string& run_dir, int rank) {
  return fmt::format("{}/status/rank-{}", run_dir, rank);
}

Result<StatusFile> StatusFile::create(const std::string& run_dir, int rank) {
  std::error_code fault;
  std::filesystem::create_directories(run_dir + "/status", fault);
  if (fault)
    return runtime_error("run.status", fmt::format("{}/status: {}", run_dir, fault.message()));
  const std::string path = status_path(run_dir, rank);
  ::unlink(path.c_str());  // a reader of an earlier attempt keeps the old one
  MOTLEY_ASSIGN(StatusRecord * record, map_record(path, O_CREAT));
  // Readers share the memory from here on; it holds only atomics.
  new (record) StatusRecord{};
  record->compute_instruction = -1;
  record->transfer_instruction = -1;
  record->peer_instruction = -1;
  // Last: a record with a pid is complete.
  record->pid = ::getpid();
  return StatusFile(record);
}

Result<StatusFile> StatusFile::open(const std::string& run_dir, int rank) {
  MOTLEY_ASSIGN(StatusRecord * record, map_record(status_path(run_dir, rank), 0));
  return StatusFile(record);
}

namespace {

constexpr std::atomic<std::int64_t> StatusRecord::*kNumbers[] = {
    &StatusRecord::pid,
    &StatusRecord::step,
    &StatusRecord::compute_instruction,
    &StatusRecord::transfer_instruction,
    &StatusRecord::peer_instruction,
    &StatusRecord::updated_ns};

}  // namespace

std::vector<std::int64_t> StatusFile::numbers() const {
  std::vector<std::int64_t> numbers;
  for (const auto part : kNumbers) numbers.push_back((record_->*part).load());
  return numbers;
}

void StatusFile::set(const std::vector<std::int64_t>& numbers) {
  for (std::size_t i = 0; i < numbers.size() && i < std::size(kNumbers); ++i)
    record_->*kNumbers[i] = numbers[i];
}

StatusFile::StatusFile(StatusFile&& other) noexcept
    : record_(std::exchange(other.record_, nullptr)) {}

StatusFile& StatusFile::operator=(StatusFile&& other) noexcept {
  std::swap(record_, other.record_);
  return *this;
}

StatusFile::~StatusFile() {
  if (record_ != nullptr) ::munmap(record_, sizeof(StatusRecord));
}

}  // namespace motley::run
