#pragma once

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "motley/run/hosts/child_process.h"

namespace motley::run {

/// Delivers SIGTERM, SIGINT and SIGUSR1 (which batch systems send before the end) by a descriptor,
/// polled with the workers' output, while it lives: a handler can do almost nothing safely.
class SignalPipe {
 public:
  SignalPipe() {
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGTERM);
    sigaddset(&wanted, SIGINT);
    sigaddset(&wanted, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &wanted, &before_);
    descriptor_ = Descriptor(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~SignalPipe() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalPipe(const SignalPipe&) = delete;
  SignalPipe& operator=(const SignalPipe&) = delete;
  int number() const { return descriptor_.number(); }
  const sigset_t& mask_before() const { return before_; }
  /// Passes each signal since the last call to `visit`. Returns how many there were.
  template <typename Visit>
  int take(const Visit& visit) {
    signalfd_siginfo signal;
    int count = 0;
    while (::read(descriptor_.number(), &signal, sizeof signal) == sizeof signal) {
      ++count;
      visit(static_cast<int>(signal.ssi_signo));
    }
    return count;
  }
  int take() {
    return take([](int) {});
  }

 private:
  sigset_t before_{};
  Descriptor descriptor_;
};

}  // namespace motley::run
