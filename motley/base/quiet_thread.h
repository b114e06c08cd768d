#pragma once

#include <signal.h>

#include <thread>
#include <utility>

namespace motley {

/// A thread that no signal is delivered to. A program that takes SIGTERM through a descriptor has
/// it blocked in all threads: one that were started before would be ended by it, and all with it.
template <typename Body>
std::thread start_quiet_thread(Body body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace motley
