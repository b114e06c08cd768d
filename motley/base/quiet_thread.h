#pragma once

#include <signal.h>

#include <thread>
#include <utility>

namespace motley {

/// Starts a thread that receives no signals. A program that takes SIGTERM through a descriptor
/// blocks it in all threads; a thread started earlier would receive it and end the process.
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
