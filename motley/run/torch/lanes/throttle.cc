#include "motley/run/torch/lanes/throttle.h"

#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <cerrno>

namespace motley::run {

namespace {

// Reading the thread's clock is a system call of about 0.2 us: not after each small operator.
constexpr std::int64_t kGlance = 100'000;    // ns between looks at the clocks
constexpr std::int64_t kSleep = 50'000'000;  // smallest debt worth a sleep while working
constexpr std::int64_t kSleepAtHandover = 20'000;
// Waiting for a peer earns no more than 20 ms of credit: a device that waited for seconds
// must not be fast for seconds.
constexpr double kCredit = 20e6;

std::int64_t read_clock(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

Throttle::Throttle(double speed) : active_(speed < 1.0), speed_(speed) {
  // By default the kernel may wake us 50 us late, to join wake-ups.
  if (active_) prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0);
}

void Throttle::resume() {
  if (!active_) return;
  wall_ns_ = read_clock(CLOCK_MONOTONIC);
  cpu_ns_ = read_clock(CLOCK_THREAD_CPUTIME_ID);
}

void Throttle::charge_active() {
  if (read_clock(CLOCK_MONOTONIC) - wall_ns_ < kGlance) return;
  settle();
  sleep_off(kSleep);
}

void Throttle::catch_up() {
  if (!active_) return;
  settle();
  sleep_off(kSleepAtHandover);
}

void Throttle::settle() {
  const std::int64_t wall = read_clock(CLOCK_MONOTONIC);
  const std::int64_t cpu = read_clock(CLOCK_THREAD_CPUTIME_ID);
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
  const timespec deadline{until / 1'000'000'000, until % 1'000'000'000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, nullptr) == EINTR) {
  }
  settle();
}

}  // namespace motley::run
