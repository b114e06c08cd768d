#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "motley/base/result.h"
#include "motley/run/hosts/status.h"
#include "motley/run/torch/lanes/lane_progress.h"

namespace motley::run {

/// A dependency: this instruction of another strand (program/strands.h), and all before it.
struct StrandWait {
  std::size_t strand = 0;
  int id = 0;
};

/// How far a device's strands have come in a step, what stopped them, and which sends and receives
/// are in flight. Each strand has one thread, the only writer of its data.
class StepProgress {
 public:
  /// `status` may be null.
  StepProgress(std::size_t strands, std::size_t instructions, StatusRecord* status)
      : count_(strands),
        strands_(std::make_unique<Strand[]>(strands)),
        ready_ns_(instructions),
        status_(status) {}

  /// Prepares a step, while no strand runs.
  void reset() {
    for (std::size_t strand = 0; strand < count_; ++strand) {
      strands_[strand].done.reset();
      strands_[strand].last.store(-1, std::memory_order_relaxed);
    }
  }
  /// Marks instruction `id` of a strand as done, ready at `ready_ns` (monotonic clock; 0: unknown):
  /// before now after a late wake-up, later if the device's clock is ahead.
  void advance(std::size_t strand, int id, std::int64_t ready_ns = 0) {
    ready_ns_[static_cast<std::size_t>(id)] = ready_ns;  // visible to waiters with the progress
    strands_[strand].last.store(id, std::memory_order_relaxed);
    strands_[strand].done.advance(id);
  }
  void fail(std::size_t strand, Error fault) {
    {
      const std::lock_guard lock(mutex_);
      if (!fault_ || (is_consequence(*fault_) && !is_consequence(fault))) fault_ = std::move(fault);
    }
    strands_[strand].done.fail();
  }
  bool wait_for(const StrandWait& wait) const {
    return strands_[wait.strand].done.wait_for(wait.id);
  }
  bool wait_for_all(const std::vector<StrandWait>& waits) const {
    return std::all_of(waits.begin(), waits.end(),
                       [&](const StrandWait& wait) { return wait_for(wait); });
  }
  /// Returns the strand's last completed instruction of this step, even if it failed later; -1:
  /// none. In the compute lane only awaited instructions count. Call when all strands have stopped.
  int last(std::size_t strand) const {
    return strands_[strand].last.load(std::memory_order_relaxed);
  }
  /// Returns when the results of completed waits are ready; 0: unknown.
  std::int64_t ready_ns(const std::vector<StrandWait>& waits) const {
    std::int64_t last = 0;
    for (const StrandWait& wait : waits) {
      const std::int64_t ready = ready_ns_[static_cast<std::size_t>(wait.id)];
      if (ready == 0) return 0;
      last = std::max(last, ready);
    }
    return last;
  }
  /// Returns what stopped the step, after all strands stopped: the first fault that caused others.
  Error fault() const {
    const std::lock_guard lock(mutex_);
    return fault_.value_or(stopped());
  }
  /// Returns the error of a strand that waited for a failed one.
  static Error stopped() { return {ErrorKind::kRuntime, kStopped, "another lane failed"}; }

  /// Records the strand's send or receive in flight; -1: none. The status shows the first one.
  void set_under_way(std::size_t strand, int id) {
    if (status_ == nullptr) return;
    strands_[strand].under_way.store(id, std::memory_order_relaxed);
    int first = -1;
    for (std::size_t each = 0; each < count_; ++each) {
      const int other = strands_[each].under_way.load(std::memory_order_relaxed);
      if (other >= 0 && (first < 0 || other < first)) first = other;
    }
    status_->peer_instruction.store(first, std::memory_order_relaxed);
  }

 private:
  static constexpr const char* kStopped = "run.stopped";
  static bool is_consequence(const Error& error) {
    return error.code == kStopped || error.code == "run.closed";
  }
  struct Strand {
    LaneProgress done;
    std::atomic<int> last = -1;
    std::atomic<int> under_way = -1;
  };
  const std::size_t count_;
  const std::unique_ptr<Strand[]> strands_;
  std::vector<std::int64_t> ready_ns_;  // by instruction
  StatusRecord* status_;
  mutable std::mutex mutex_;
  std::optional<Error> fault_;
};

}  // namespace motley::run
