#include "motley/run/torch/arrival_clock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace motley::run {

std::int64_t monotonic_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

Result<ArrivalClock> ArrivalClock::open(const std::string& path, std::size_t groups,
                                        std::size_t ranks) {
  const std::size_t bytes = 2 * std::max<std::size_t>(1, groups) * ranks * sizeof(Stamp);
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  int fault = file < 0 ? errno : ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
  void* memory = MAP_FAILED;
  if (fault == 0) {
    memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) fault = errno;
  }
  if (file >= 0) ::close(file);
  if (fault != 0)
    return runtime_error("run.clock", fmt::format("{}: {}", path, std::strerror(fault)));
  return ArrivalClock(static_cast<Stamp*>(memory), groups, ranks);
}

ArrivalClock::ArrivalClock(ArrivalClock&& other) noexcept
    : stamps_(std::exchange(other.stamps_, nullptr)),
      ranks_(other.ranks_),
      calls_(std::move(other.calls_)) {}

ArrivalClock& ArrivalClock::operator=(ArrivalClock&& other) noexcept {
  std::swap(stamps_, other.stamps_);
  std::swap(ranks_, other.ranks_);
  std::swap(calls_, other.calls_);
  return *this;
}

ArrivalClock::~ArrivalClock() {
  const std::size_t groups = std::max<std::size_t>(1, calls_.size());
  if (stamps_ != nullptr) ::munmap(stamps_, 2 * groups * ranks_ * sizeof(Stamp));
}

ArrivalClock::Stamp& ArrivalClock::stamp(std::size_t group, int rank) const {
  return stamps_[(2 * group + calls_[group] % 2) * ranks_ + static_cast<std::size_t>(rank)];
}

void ArrivalClock::arrive(std::size_t group, int rank) {
  ++calls_[group];
  stamp(group, rank).store(monotonic_ns(), std::memory_order_release);
}

std::int64_t ArrivalClock::last_arrival(std::size_t group, const std::vector<int>& members) const {
  std::int64_t last = 0;
  for (const int member : members)
    last = std::max(last, stamp(group, member).load(std::memory_order_acquire));
  return last;
}

}  // namespace motley::run
