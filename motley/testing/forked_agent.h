#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "motley/run/hosts/agent.h"
#include "motley/run/hosts/host_link.h"
#include "motley/run/hosts/hosts.h"

namespace motley::run {

/// For tests: a host's agent, a process of this machine with its own cache.
class ForkedAgent {
 public:
  ForkedAgent(const std::string& host, const std::string& cache) {
    ::signal(SIGPIPE, SIG_IGN);
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      const AgentOptions options{.input = ends[1], .output = ends[1], .cache = cache};
      ::_exit(serve_agent(options) ? 0 : 1);
    }
    ::close(ends[1]);
    link_ = HostLink::over(host, Descriptor(ends[0]));
    auto hello = link_->greet(10);
    EXPECT_TRUE(hello.has_value());
    if (hello) hello_ = std::move(*hello);
  }
  ~ForkedAgent() {
    link_.reset();
    kill();
    wait_for_exit(pid_);
  }
  ForkedAgent(const ForkedAgent&) = delete;
  ForkedAgent& operator=(const ForkedAgent&) = delete;

  HostLink& link() { return *link_; }
  void kill() { ::kill(pid_, SIGKILL); }
  /// Waits until it has done all requests so far.
  void settle() {
    EXPECT_TRUE(link_->ask({{"do", "exists"}, {"path", "/"}}, "exists", 10).has_value());
  }
  /// Disconnects its coordinator; the agent may survive that.
  void leave() { link_.reset(); }
  /// Hands it to an object of Hosts, which ends first, as a separate machine that the coordinator
  /// sees at 127.0.0.2 and that sees the coordinator at `coordinator`.
  Hosts::Reached give(const std::string& coordinator = "127.0.0.1") {
    hello_["machine"] = "the machine " + link_->host();
    hello_["ssh_connection"] = coordinator + " 40000 127.0.0.2 22";
    return {std::move(link_), hello_};
  }

 private:
  pid_t pid_ = -1;
  std::unique_ptr<HostLink> link_;
  Json hello_;
};

}  // namespace motley::run
