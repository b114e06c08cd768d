#pragma once

#include <atomic>
#include <limits>

#include "motley/run/futex.h"

namespace motley::run {

/// How far a lane has come in a step: the id of the last instruction that it finished, published
/// for the other lanes. One writer; any thread may wait. Waiting sleeps in the kernel at once, and
/// is woken when somebody's instruction is done, not at each: std::atomic's wait yields first, and
/// a lane that yields beside its compute lane takes turns with it on their processor.
class LaneProgress {
 public:
  /// Before a step.
  void reset() { done_.store(-1, std::memory_order_release); }
  /// Instruction `id` and all before it in this lane are done.
  void advance(int id) {
    done_.store(id);
    if (wanted_.load() > id) return;
    // Before the turn changes: who sees the new turn also sees that its wish must be made again.
    wanted_.store(kNobody);
    turn_.fetch_add(1);
    futex_wake_all(turn_);
  }
  /// The lane will do no more: waiters return.
  void fail() { advance(kFailed); }
  /// Until `id` is done. False: the lane failed.
  bool wait_for(int id) const {
    for (;;) {
      const std::uint32_t turn = turn_.load();
      int wanted = wanted_.load();
      if (done_.load(std::memory_order_acquire) >= id) break;
      while (wanted > id && !wanted_.compare_exchange_weak(wanted, id)) {
      }
      if (done_.load() >= id) break;
      futex_wait(turn_, turn, kSecond);
    }
    return done_.load(std::memory_order_acquire) != kFailed;
  }

 private:
  static constexpr int kFailed = std::numeric_limits<int>::max() - 1;
  static constexpr int kNobody = std::numeric_limits<int>::max();
  static constexpr std::int64_t kSecond = 1'000'000'000;
  std::atomic<int> done_ = -1;
  mutable std::atomic<int> wanted_ = kNobody;  // the first that a waiter waits for
  mutable FutexWord turn_ = 0;                 // changes when waiters are woken
};

}  // namespace motley::run
