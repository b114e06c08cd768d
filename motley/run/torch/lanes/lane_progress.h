#pragma once

#include <atomic>
#include <limits>

namespace motley::run {

/// How far a lane has come in a step: the id of the last instruction that it finished, published
/// for the other lane. One writer; any thread may wait. Waiting sleeps in the kernel.
class LaneProgress {
 public:
  /// Before a step.
  void reset() { done_.store(-1, std::memory_order_release); }
  /// Instruction `id` and all before it in this lane are done.
  void advance(int id) {
    done_.store(id, std::memory_order_release);
    done_.notify_all();
  }
  /// The lane will do no more: waiters return.
  void fail() { advance(kFailed); }
  /// Until `id` is done. False: the lane failed.
  bool wait_for(int id) const {
    int done = done_.load(std::memory_order_acquire);
    while (done < id) {
      done_.wait(done, std::memory_order_acquire);
      done = done_.load(std::memory_order_acquire);
    }
    return done != kFailed;
  }

 private:
  static constexpr int kFailed = std::numeric_limits<int>::max();
  std::atomic<int> done_ = -1;
};

}  // namespace motley::run
