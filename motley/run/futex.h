#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace motley::run {

/// A number that processes share and wait on.
using FutexWord = std::atomic<std::uint32_t>;
static_assert(sizeof(FutexWord) == 4 && FutexWord::is_always_lock_free);

/// Like std::atomic's wait and notify, but across processes and with a time limit.
inline void futex_wait(FutexWord& word, std::uint32_t expected, std::int64_t most_ns) {
  const timespec bound{most_ns / 1'000'000'000, most_ns % 1'000'000'000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &bound, nullptr, 0);
}

inline void futex_wake_all(FutexWord& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace motley::run
