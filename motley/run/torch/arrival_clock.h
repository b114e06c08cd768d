#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/result.h"

namespace motley::run {

/// Nanoseconds of the machine's monotonic clock, the same in all its processes.
std::int64_t monotonic_ns();

/// When the last member of a group joined in a collective, for ranks of one machine: each stamps a
/// file that all map before it calls, and reads the others' stamps after the collective has ended,
/// when all must have called. Costs no message. A rank is at most one collective ahead of another,
/// so two stamps a rank are enough. One thread of each rank.
class ArrivalClock {
 public:
  /// Maps `path`, made if need be; `groups` and `ranks` are the same on all ranks.
  static Result<ArrivalClock> open(const std::string& path, std::size_t groups, std::size_t ranks);
  ArrivalClock(ArrivalClock&& other) noexcept;
  ArrivalClock& operator=(ArrivalClock&& other) noexcept;
  ~ArrivalClock();

  /// This rank calls the group's next collective now.
  void arrive(std::size_t group, int rank);
  /// After that collective: the latest arrival among `members`.
  std::int64_t last_arrival(std::size_t group, const std::vector<int>& members) const;

 private:
  using Stamp = std::atomic<std::int64_t>;
  ArrivalClock(Stamp* stamps, std::size_t groups, std::size_t ranks)
      : stamps_(stamps), ranks_(ranks), calls_(groups) {}
  Stamp& stamp(std::size_t group, int rank) const;

  Stamp* stamps_ = nullptr;
  std::size_t ranks_ = 0;
  std::vector<std::uint64_t> calls_;  // of this rank, by group
};

}  // namespace motley::run
