#pragma once

#include <cstdint>

namespace motley::run {

/// Makes the calling thread behave as if it had `speed` of a core: it is charged the processor time
/// it really used, so that neither other load on the machine nor late wake-ups change what is
/// emulated. Kept is a debt, used / speed - elapsed; above about half a millisecond it is slept
/// off. Sleeping too long leaves a credit that the next work uses, bounded so that a thread that
/// was not run for long does not catch up at full speed. With intra-op threads the calling thread
/// takes part in every parallel region, so its time stands for the device's.
///
///   Throttle throttle(0.4);
///   throttle.resume(monotonic_ns());
///   for (...) { work(); throttle.charge(); }
///   throttle.catch_up();  // before others are told of the work, and before waiting for others
///   const std::int64_t since_ns = wait();
///   throttle.resume(since_ns);  // waiting neither earned nor cost
///
/// One thread. A speed of 1 or more does nothing and costs nothing.
class Throttle {
 public:
  explicit Throttle(double speed);
  /// Starts the clocks afresh; what is owed stays. `since_ns`: when what was waited for was there
  /// (monotonic clock); being woken later than that is made up for.
  void resume(std::int64_t since_ns);
  /// Call often while working; looks at the clocks at most every 0.1 ms.
  void charge() {
    if (active_) charge_active();
  }
  /// Sleeps off what is owed.
  void catch_up();

 private:
  void charge_active();
  void settle();
  void sleep_off(std::int64_t at_least_ns);

  bool active_;
  double speed_;
  std::int64_t wall_ns_ = 0, cpu_ns_ = 0;  // when last settled
  double debt_ns_ = 0;
};

}  // namespace motley::run
