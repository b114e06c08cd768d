#pragma once

#include <cstdint>
#include <utility>

namespace motley::run {

/// The clock of a device that has `speed` of a core. It advances by used / speed, where used is the
/// calling thread's real processor time, so neither other load nor late wake-ups change the
/// emulation. It may run ahead of real time: the thread works in one burst, as for a whole step,
/// and readers of its results wait until the device has them. Sleeping before each message instead
/// would leave caches cold after each, which the device would not see. With intra-op threads the
/// calling thread takes part in every parallel region, so its time stands for the device's.
///
///   DeviceClock clock(0.4);
///   clock.start(monotonic_ns());
///   for (...) { work(); clock.charge(); }
///   publish(clock.now_ns());        // when the device has the result
///   clock.resume(wait());           // when what it waited for was there
///   clock.catch_up();               // the step ends when the device's does
///
/// For one thread. With a speed of 1 or more it is the real clock and costs nothing.
class DeviceClock {
 public:
  explicit DeviceClock(double speed);
  bool is_emulated() const { return is_emulated_; }
  /// Takes effect from the next step on.
  void set_speed(double speed);
  /// Starts a step: time since the last is not charged, so the lead over real time is unchanged.
  void start(std::int64_t real_ns);
  /// Continues after a wait for something that was there at `since_ns` (0: just now). The device
  /// does not continue earlier, and not later even if its thread woke late. Returns its time.
  std::int64_t resume(std::int64_t since_ns);
  /// Charges work. Call often; reads the clocks at most every 0.1 ms. Sleeps if far ahead.
  void charge() {
    if (is_emulated_) charge_emulated();
  }
  std::int64_t now_ns();
  /// Estimates now_ns as if the thread had worked since the last reading; makes no system call.
  std::int64_t about_now_ns() const;
  /// Returns the jumps since the last call: time skipped because the thread got so little of a
  /// processor that it would have fallen far behind. It belongs to no instruction.
  std::int64_t take_jumped_ns() { return std::exchange(jumped_ns_, 0); }
  void catch_up();

 private:
  void charge_emulated();
  void settle();

  bool is_emulated_ = false;
  double speed_ = 1;
  double now_ns_ = 0;
  std::int64_t real_ns_ = 0, cpu_ns_ = 0;  // at the last settle
  std::int64_t jumped_ns_ = 0;
};

}  // namespace motley::run
