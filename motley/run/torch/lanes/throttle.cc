#include "motley/run/torch/lanes/throttle.h"

#include <sys/prctl.h>

#include <algorithm>

#include "motley/run/torch/exchange/clock.h"

namespace motley::run {

namespace {

// Reading the thread's clock is a system call of about 0.2 us: not after each small operator.
constexpr std::int64_t kGlance = 100'000;    // ns between looks at the clocks
constexpr std::int64_t kSleep = 50'000'000;  // smallest debt worth a sleep while working
constexpr std::int64_t kSleepAtHandover = 20'000;
// Waiting for a peer earns no more than 20 ms of credit: a device that waited for seconds
// must not be fast for seconds.
constexpr double kCredit = 20e6;

}  // namespace

Throttle::Throttle(double speed) : active_(speed < 1.0), speed_(speed) {
  // By default the kernel may wake us 50 us late, to join wake-ups.
  if (active_) prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0);
}

void Throttle::resume(std::int64_t since_ns) {
  if (!active_) return;
  wall_ns_ = since_ns;
  cpu_ns_ = thread_cpu_ns();
}

void Throttle::charge_active() {
  if (monotonic_ns() - wall_ns_ < kGlance) return;
  settle();
  sleep_off(kSleep);
}

void Throttle::catch_up() {
  if (!active_) return;
  settle();
  sleep_off(kSleepAtHandover);
}

void Throttle::settle() {
  const std::int64_t wall = monotonic_ns();
  const std::int64_t cpu = thread_cpu_ns();
  // What the emulated device would have taken for this processor time, less the time that has
  // passed.
  debt_ns_ += static_cast<double>(cpu - cpu_ns_) / speed_ - static_cast<double>(wall - wall_ns_);
  debt_ns_ = std::max(debt_ns_, -kCredit);
  wall_ns_ = wall;
  cpu_ns_ = cpu;
}

void Throttle::sleep_off(std::int64_t at_least_ns) {
  if (debt_ns_ < static_cast<double>(at_least_ns)) return;
  const std::int64_t until = wall_ns_ + static_cast<std::int64_t>(debt_ns_);
  // Until a time, not for a time: being interrupted or woken late does not add up.
  sleep_until_ns(until);
  settle();
}

}  // namespace motley::run
