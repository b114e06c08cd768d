#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "motley/base/descriptor.h"

namespace motley::run {

/// A thread that serves 127.0.0.1: answers requests with given bytes and closes, one by one.
class ReplayServer {
 public:
  /// Answers a whole request; kSilence: nothing, and the connection stays open.
  using Answer = std::function<std::string(const std::string& request)>;
  static constexpr const char* kSilence = "(silence)";

  explicit ReplayServer(Answer answer) : answer_(std::move(answer)) {
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof own;
    auto* name = reinterpret_cast<sockaddr*>(&own);
    EXPECT_EQ(::bind(listening_.number(), name, length), 0);
    EXPECT_EQ(::listen(listening_.number(), 16), 0);
    EXPECT_EQ(::getsockname(listening_.number(), name, &length), 0);
    port_ = ntohs(own.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~ReplayServer() {
    ::eventfd_write(over_.number(), 1);
    thread_.join();
  }
  ReplayServer(const ReplayServer&) = delete;
  ReplayServer& operator=(const ReplayServer&) = delete;

  int port() const { return port_; }
  std::string place() const { return "127.0.0.1:" + std::to_string(port_); }
  std::vector<std::string> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

  /// Prints "HTTP/1.1 200 ..." with a body and its length.
  static std::string text_of(int status, const std::string& body) {
    return "HTTP/1.1 " + std::to_string(status) +
           " So\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }

 private:
  /// Waits for input; false: the server ends.
  bool wait(int descriptor) {
    pollfd waits[2] = {{over_.number(), POLLIN, 0}, {descriptor, POLLIN, 0}};
    ::poll(waits, 2, -1);
    return waits[0].revents == 0;
  }
  void serve() {
    std::vector<Descriptor> silent;
    while (wait(listening_.number())) {
      Descriptor socket(::accept4(listening_.number(), nullptr, nullptr, SOCK_CLOEXEC));
      std::string request;
      char piece[4096];
      while (request.find("\r\n\r\n") == std::string::npos && wait(socket.number())) {
        const ssize_t count = ::recv(socket.number(), piece, sizeof piece, 0);
        if (count <= 0) break;
        request.append(piece, static_cast<std::size_t>(count));
      }
      {
        const std::lock_guard lock(mutex_);
        requests_.push_back(request);
      }
      const std::string text = answer_(request);
      if (text == kSilence)
        silent.push_back(std::move(socket));
      else
        ::send(socket.number(), text.data(), text.size(), MSG_NOSIGNAL);
    }
  }

  Answer answer_;
  Descriptor listening_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  Descriptor over_{::eventfd(0, EFD_CLOEXEC)};
  int port_ = 0;
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

}  // namespace motley::run
