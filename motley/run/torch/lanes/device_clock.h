#pragma once

#include <cstdint>
#include <utility>

namespace motley::run {

/// The clock of a device that has `speed` of a core: it goes on by used / speed, the processor time
/// that the calling thread really uses, so that neither other load on the machine nor late wake-ups
/// change what is emulated. It may be ahead of the real one: the thread works on in one burst, as
/// it would for a whole step, and who takes its results waits until the device has them. A thread
/// that slept before each message would find its caches cold after each, which the device would
/// not. With intra-op threads the calling thread takes part in every parallel region, so its time
/// stands for the device's.
///
///   DeviceClock clock(0.4);
///   clock.start(monotonic_ns());
///   for (...) { work(); clock.charge(); }
///   publish(clock.now_ns());        // when the device has the result
///   clock.resume(wait());           // when what it waited for was there
///   clock.catch_up();               // the step is over when the device says so
///
/// One thread. Of a speed of 1 or more it is the real clock and costs nothing.
class DeviceClock {
 public:
  explicit DeviceClock(double speed);
  bool is_emulated() const { return is_emulated_; }
  /// From the next step on.
  void set_speed(double speed);
  /// Between steps nothing is charged: at `real_ns` it is as far ahead, or behind, as it was.
  void start(std::int64_t real_ns);
  /// What was waited for was there at `since_ns` (0: just now): no earlier does the device go on,
  /// and it does then though its thread was woken later. The time at which it does.
  std::int64_t resume(std::int64_t since_ns);
  /// Call often while working; looks at the clocks at most every 0.1 ms. Sleeps when far ahead.
  void charge() {
    if (is_emulated_) charge_emulated();
  }
  std::int64_t now_ns();
  /// The same as if the thread had worked all the time since the clocks were looked at: without the
  /// system call that asks for its processor time.
  std::int64_t about_now_ns() const;
  /// What it went on by since this was asked without any work, as its thread got so little of a
  /// processor that it would have been far behind: nobody's time.
  std::int64_t take_jumped_ns() { return std::exchange(jumped_ns_, 0); }
  /// Sleeps until the real clock is there.
  void catch_up();

 private:
  void charge_emulated();
  void settle();

  bool is_emulated_ = false;
  double speed_ = 1;
  double now_ns_ = 0;
  std::int64_t real_ns_ = 0, cpu_ns_ = 0;  // when last settled
  std::int64_t jumped_ns_ = 0;
};

}  // namespace motley::run
