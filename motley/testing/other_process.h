#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <functional>
#include <string>

#include "motley/base/descriptor.h"

namespace motley::testing {

/// For tests: another process with some work; it is killed with this object.
class OtherProcess {
 public:
  /// `work` returns an error, or "" for none. Its `ready` writes a byte for `wait_for_ready`.
  explicit OtherProcess(
      const std::function<std::string(const std::function<void()>& ready)>& work) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    heard_ = Descriptor(ends[0]);
    const Descriptor said(ends[1]);
    pid_ = ::fork();
    if (pid_ != 0) return;
    const std::string fault = work([&] { EXPECT_EQ(::write(said.number(), "!", 1), 1); });
    if (!fault.empty()) std::fprintf(stderr, "%s\n", fault.c_str());
    ::_exit(fault.empty() ? 0 : 1);
  }
  ~OtherProcess() { kill(); }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;

  int pid() const { return pid_; }
  void wait_for_ready() const {
    char byte = 0;
    ASSERT_EQ(::read(heard_.number(), &byte, 1), 1);
  }
  /// Returns its exit code: 0 without error.
  int wait_for_exit() {
    int status = -1;
    if (pid_ > 0) ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void kill() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    wait_for_exit();
  }

 private:
  pid_t pid_ = -1;
  Descriptor heard_;
};

}  // namespace motley::testing
