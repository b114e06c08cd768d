#pragma once

#include <atomic>
#include <limits>

#include "motley/run/futex.h"

namespace motley::run {

/// How far a lane has come in a step: its last finished instruction, published for other lanes. One
/// writer; any thread may wait. A waiter sleeps in the kernel and wakes only for its instruction:
/// std::atomic's wait yields first, and would alternate with a compute lane on its processor.
class LaneProgress {
 public:
  void reset() { done_.store(-1, std::memory_order_release); }
  /// Marks instruction `id` and all before it in this lane as done.
  void advance(int id) {
    done_.store(id);
    if (wanted_.load() > id) return;
    // Before turn_ changes: a waiter that sees the new turn also sees that it must renew its wish.
    wanted_.store(kNobody);
    turn_.fetch_add(1);
    futex_wake_all(turn_);
  }
  void fail() { advance(kFailed); }
  /// Waits until `id` is done. False: the lane failed.
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
  mutable std::atomic<int> wanted_ = kNobody;  // lowest id that a waiter waits for
  mutable FutexWord turn_ = 0;                 // changes when waiters are woken
};

}  // namespace motley::run
