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

/// What an instruction waits for: that this one of another strand (program/strands.h) is done, and
/// with it all before it there.
struct StrandWait {
  std::size_t strand = 0;
  int id = 0;
};

/// How far the strands of a device have come in a step, what stopped them, and which sends and
/// receives are under way. Each strand has one thread, which alone writes what is of its strand.
class StepProgress {
 public:
  /// `status` may be null.
  StepProgress(std::size_t strands, std::size_t instructions, StatusRecord* status)
      : count_(strands),
        strands_(std::make_unique<Strand[]>(strands)),
        ready_ns_(instructions),
        status_(status) {}

  /// Before a step, while no strand runs.
  void reset() {
    for (std::size_t strand = 0; strand < count_; ++strand) {
      strands_[strand].done.reset();
      strands_[strand].last.store(-1, std::memory_order_relaxed);
    }
  }
  /// Instruction `id` of a strand is done; its device has it at `ready_ns` (monotonic clock; 0: not
  /// known): earlier, had nobody been woken late, or later, where its clock is ahead.
  void advance(std::size_t strand, int id, std::int64_t ready_ns = 0) {
    ready_ns_[static_cast<std::size_t>(id)] = ready_ns;  // who waits sees it with what is done
    strands_[strand].last.store(id, std::memory_order_relaxed);
    strands_[strand].done.advance(id);
  }
  /// The strand will do no more.
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
  /// False: a strand failed.
  bool wait_for_all(const std::vector<StrandWait>& waits) const {
    return std::all_of(waits.begin(), waits.end(),
                       [&](const StrandWait& wait) { return wait_for(wait); });
  }
  /// The last instruction that a strand has done in this step, also where it failed then; -1: none.
  /// Of the compute lane only those count that somebody waits for. When all strands have stopped.
  int last(std::size_t strand) const {
    return strands_[strand].last.load(std::memory_order_relaxed);
  }
  /// When what they wait for, which is done, is there; 0: not known.
  std::int64_t ready_ns(const std::vector<StrandWait>& waits) const {
    std::int64_t last = 0;
    for (const StrandWait& wait : waits) {
      const std::int64_t ready = ready_ns_[static_cast<std::size_t>(wait.id)];
      if (ready == 0) return 0;
      last = std::max(last, ready);
    }
    return last;
  }
  /// What stopped the step, once all strands have stopped: the first fault that does not follow
  /// from another.
  Error fault() const {
    const std::lock_guard lock(mutex_);
    return fault_.value_or(stopped());
  }
  /// What a strand ends with that waited for one that failed.
  static Error stopped() { return {ErrorKind::kRuntime, kStopped, "another lane failed"}; }

  /// Send or receive `id` of a strand is under way; -1: none is. The status shows the one of all
  /// strands that comes first in the program.
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
