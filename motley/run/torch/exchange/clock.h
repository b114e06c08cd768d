#pragma once

#include <time.h>

#include <cstdint>

namespace motley::run {

/// Returns nanoseconds of the machine's monotonic clock, the same in all processes. Traces use it.
inline std::int64_t monotonic_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

inline std::int64_t thread_cpu_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

/// Sleeps until that moment; returns at once if it has passed.
inline void sleep_until_ns(std::int64_t moment) {
  const timespec time{moment / 1'000'000'000, moment % 1'000'000'000};
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr) != 0) {
  }
}

}  // namespace motley::run
