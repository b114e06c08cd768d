#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "motley/run/hosts/frame.h"
#include "motley/run/hosts/hosts.h"

namespace motley::run {

/// For tests: a scripted agent, a thread that ends with its coordinator or with the object.
class ScriptedAgent {
 public:
  /// Answers by request; other requests are only recorded.
  using Answers = std::map<std::string, std::function<Json(const Json& asked)>>;

  ScriptedAgent(const Json& hello, Answers answers = {})
      : hello_(hello), answers_(std::move(answers)) {
    hello_["is"] = "hello";
  }
  ~ScriptedAgent() { end(); }
  ScriptedAgent(const ScriptedAgent&) = delete;
  ScriptedAgent& operator=(const ScriptedAgent&) = delete;

  /// Begins, at its end of a connection from `connect`.
  void begin(std::function<Descriptor()> connect) {
    thread_ = std::thread([this, connect = std::move(connect)] {
      if (const Descriptor socket = connect(); socket.is_open()) serve(socket.number());
    });
  }
  /// Begins, and returns it as Hosts takes it.
  Hosts::Reached give(const std::string& host) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    begin([end = ends[1]] { return Descriptor(end); });
    return {HostLink::over(host, Descriptor(ends[0])), hello_};
  }
  void end() {
    is_over_ = true;
    if (thread_.joinable()) thread_.join();
  }

  /// Returns the requests so far, without heartbeats.
  std::vector<Json> heard() const {
    const std::scoped_lock lock(mutex_);
    return heard_;
  }
  bool is_over() const { return is_over_; }

 private:
  void serve(int socket) {
    FrameWriter words;
    words.add(hello_);
    FrameReader reader;
    constexpr int kLookMs = 10;
    while (!is_over_ && words.write_all(socket, 5)) {
      pollfd wait{socket, POLLIN, 0};
      if (::poll(&wait, 1, kLookMs) > 0 && !reader.read_some(socket)) return;
      while (const auto frame = reader.next()) answer(frame->head, words);
    }
  }
  void answer(const Json& asked, FrameWriter& words) {
    const std::string what = asked.value("do", "");
    if (what != "beat") {
      const std::scoped_lock lock(mutex_);
      heard_.push_back(asked);
    }
    if (const auto found = answers_.find(what); found != answers_.end())
      words.add(found->second(asked));
  }

  Json hello_;
  const Answers answers_;
  mutable std::mutex mutex_;  // of the requests
  std::vector<Json> heard_;
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

}  // namespace motley::run
