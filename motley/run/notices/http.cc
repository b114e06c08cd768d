#include "motley/run/notices/http.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <optional>

#include "motley/base/descriptor.h"
#include "motley/base/quiet_thread.h"
#include "motley/run/notices/waiting.h"

namespace motley::run {
namespace {

struct Asking {
  const HttpAsk& ask;
  const HttpPatience& patience;

  tl::unexpected<Error> failed(const std::string& why) const {
    return runtime_error("run.http", fmt::format("{} port {}: {}", ask.host, ask.port, why));
  }
  Result<void> wait(int descriptor, short events, const Deadline& deadline,
                    const std::string& late) const {
    const Woke woke = wait_on(descriptor, events, deadline, patience.wake);
    if (woke == Woke::kReady) return {};
    if (woke == Woke::kLate) return failed(late);
    return runtime_error("run.woken", "nothing more is asked");
  }
};

struct Found {
  int fault = 0;  // of getaddrinfo
  std::optional<in_addr> address;
};

Found resolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  Found found;
  found.fault = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (found.fault == 0) {
    sockaddr_in first;
    std::memcpy(&first, list->ai_addr, sizeof first);
    found.address = first.sin_addr;
    ::freeaddrinfo(list);
  }
  return found;
}

/// Resolves in a detached thread: a resolver may be slow and cannot be interrupted.
Result<in_addr> find_address(const Asking& asking, const Deadline& deadline) {
  in_addr address{};
  if (::inet_pton(AF_INET, asking.ask.host.c_str(), &address) == 1) return address;
  struct Resolving {
    Descriptor done{::eventfd(0, EFD_CLOEXEC)};
    std::promise<Found> found;
  };
  const auto resolving = std::make_shared<Resolving>();
  std::future<Found> found = resolving->found.get_future();
  start_quiet_thread([resolving, host = asking.ask.host] {
    resolving->found.set_value(resolve(host));
    ::eventfd_write(resolving->done.number(), 1);
  }).detach();
  MOTLEY_RETURN_IF_ERROR(asking.wait(resolving->done.number(), POLLIN, deadline,
                                     "no resolver says in time what address that is"));
  const Found result = found.get();
  if (!result.address) return asking.failed(::gai_strerror(result.fault));
  return *result.address;
}

Result<Descriptor> connect_in_time(const Asking& asking) {
  const Deadline deadline = Deadline::after(asking.patience.connect);
  sockaddr_in server{};
  server.sin_family = AF_INET;
  server.sin_port = htons(static_cast<std::uint16_t>(asking.ask.port));
  MOTLEY_ASSIGN(server.sin_addr, find_address(asking, deadline));
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open()) return asking.failed(std::strerror(errno));
  if (::connect(socket.number(), reinterpret_cast<sockaddr*>(&server), sizeof server) == 0)
    return socket;
  if (errno != EINPROGRESS) return asking.failed(std::strerror(errno));
  MOTLEY_RETURN_IF_ERROR(
      asking.wait(socket.number(), POLLOUT, deadline,
                  fmt::format("no connection within {} s", asking.patience.connect.value)));
  int fault = 0;
  socklen_t length = sizeof fault;
  ::getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &fault, &length);
  if (fault != 0) return asking.failed(std::strerror(fault));
  return socket;
}

std::string print_ask(const HttpAsk& ask) {
  std::string text =
      fmt::format("{} {} HTTP/1.1\r\nHost: {}{}\r\nConnection: close\r\n", ask.method, ask.path,
                  ask.host, ask.port == 80 ? "" : fmt::format(":{}", ask.port));
  if (ask.method != "GET") text += "Content-Length: 0\r\n";
  for (const auto& [name, value] : ask.headers) text += name + ": " + value + "\r\n";
  return text + "\r\n";
}

bool is_for_later() { return errno == EAGAIN || errno == EINTR; }

}  // namespace

Result<HttpAnswer> ask_http(const HttpAsk& ask, const HttpPatience& patience) {
  const Asking asking{ask, patience};
  MOTLEY_ASSIGN(const Descriptor socket, connect_in_time(asking));
  const Deadline deadline = Deadline::after(patience.answer);
  const std::string late = fmt::format("no answer within {} s", patience.answer.value);

  std::string unsent = print_ask(ask);
  while (!unsent.empty()) {
    MOTLEY_RETURN_IF_ERROR(asking.wait(socket.number(), POLLOUT, deadline, late));
    const ssize_t count = ::send(socket.number(), unsent.data(), unsent.size(), MSG_NOSIGNAL);
    if (count < 0 && !is_for_later()) return asking.failed(std::strerror(errno));
    if (count > 0) unsent.erase(0, static_cast<std::size_t>(count));
  }

  std::string received;
  std::array<char, 1 << 14> piece;
  while (true) {
    MOTLEY_RETURN_IF_ERROR(asking.wait(socket.number(), POLLIN, deadline, late));
    const ssize_t count = ::recv(socket.number(), piece.data(), piece.size(), 0);
    if (count < 0 && is_for_later()) continue;
    if (count < 0) return asking.failed(std::strerror(errno));
    received.append(piece.data(), static_cast<std::size_t>(count));
    auto answer = parse_http_answer(received, count == 0 ? Incoming::kOver : Incoming::kMore);
    if (!answer) return asking.failed(answer.error().message);
    if (*answer) return std::move(**answer);
    if (count == 0) return asking.failed("the answer ended too early");
  }
}

}  // namespace motley::run
