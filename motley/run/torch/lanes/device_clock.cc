#include "motley/run/torch/lanes/device_clock.h"

#include <sys/prctl.h>

#include <algorithm>

#include "motley/run/torch/exchange/clock.h"

namespace motley::run {

namespace {

// Reading the thread's clock is a system call of about 0.2 us: too slow after each small operator.
constexpr std::int64_t kGlance = 100'000;  // ns between readings of the clocks
constexpr double kAhead = 50e6;  // ns; limit of the lead; a burst's results are held until due
// ns; a thread that was not run for seconds must not be fast for seconds.
constexpr double kBehind = 20e6;

}  // namespace

DeviceClock::DeviceClock(double speed) { set_speed(speed); }

void DeviceClock::set_speed(double speed) {
  speed_ = speed;
  if ((speed < 1.0) == is_emulated_) return;
  is_emulated_ = speed < 1.0;
  now_ns_ = static_cast<double>(real_ns_);  // neither ahead nor behind
  // By default the kernel may delay a wake-up by 50 us, to combine wake-ups.
  if (is_emulated_) prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0);
}

void DeviceClock::start(std::int64_t real_ns) {
  if (!is_emulated_) return;
  now_ns_ += static_cast<double>(real_ns - real_ns_);
  cpu_ns_ = thread_cpu_ns();
  real_ns_ = real_ns;
}

std::int64_t DeviceClock::resume(std::int64_t since_ns) {
  if (!is_emulated_) return monotonic_ns();
  cpu_ns_ = thread_cpu_ns();  // waiting is not work
  settle();
  now_ns_ = std::max(now_ns_, static_cast<double>(since_ns == 0 ? real_ns_ : since_ns));
  return static_cast<std::int64_t>(now_ns_);
}

void DeviceClock::charge_emulated() {
  if (monotonic_ns() - real_ns_ < kGlance) return;
  settle();
  if (now_ns_ - static_cast<double>(real_ns_) > kAhead) catch_up();
}

std::int64_t DeviceClock::now_ns() {
  if (!is_emulated_) return monotonic_ns();
  settle();
  return static_cast<std::int64_t>(now_ns_);
}

std::int64_t DeviceClock::about_now_ns() const {
  const std::int64_t real = monotonic_ns();
  if (!is_emulated_) return real;
  return static_cast<std::int64_t>(now_ns_ + static_cast<double>(real - real_ns_) / speed_);
}

void DeviceClock::catch_up() {
  if (!is_emulated_) return;
  settle();
  // Until a moment, not for a duration: interruptions and late wake-ups do not add up.
  sleep_until_ns(static_cast<std::int64_t>(now_ns_));
  settle();
}

void DeviceClock::settle() {
  // In this order: another thread may run when a system call ends, which must not count as work.
  const std::int64_t cpu = thread_cpu_ns();
  real_ns_ = monotonic_ns();
  now_ns_ += static_cast<double>(cpu - cpu_ns_) / speed_;
  const double behind = static_cast<double>(real_ns_) - kBehind - now_ns_;
  if (behind > 0) {
    now_ns_ += behind;
    jumped_ns_ += static_cast<std::int64_t>(behind);
  }
  cpu_ns_ = cpu;
}

}  // namespace motley::run
