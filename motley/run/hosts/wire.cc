#include "motley/run/hosts/wire.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "motley/run/hosts/elapsed.h"

namespace motley::run {
namespace {

constexpr int kPings = 40;
constexpr double kSending = 1.2;  // seconds
constexpr double kWindow = 0.2;   // of them, in which a rate is counted
constexpr std::size_t kPiece = std::size_t{1} << 16;
constexpr int kUnderWay = 64;  // pieces at a time
constexpr double kWirePatience = 5;
constexpr char kPing = 'p', kBytes = 'b';

void set_up(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const timeval limit{static_cast<time_t>(kWirePatience), 0};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

bool send_all(int socket, const char* bytes, std::size_t count) {
  while (count > 0) {
    const ssize_t sent = ::send(socket, bytes, count, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes += sent;
    count -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool receive_all(int socket, char* bytes, std::size_t count) {
  while (count > 0) {
    const ssize_t got = ::recv(socket, bytes, count, 0);
    if (got <= 0) return false;
    bytes += got;
    count -= static_cast<std::size_t>(got);
  }
  return true;
}

/// Answers pings, and each piece when it is whole.
void answer(int socket, const std::string& word) {
  set_up(socket);
  std::string told(word.size(), '\0');
  if (!receive_all(socket, told.data(), told.size()) || told != word) return;
  std::vector<char> piece(kPiece);
  char what = 0;
  while (receive_all(socket, &what, 1)) {
    if (what == kPing && !send_all(socket, &what, 1)) return;
    if (what != kBytes) continue;
    if (!receive_all(socket, piece.data(), piece.size()) || !send_all(socket, &what, 1)) return;
  }
}

Result<Descriptor> connect_to(const std::string& address, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int fault = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  std::string why = fault == 0 ? "" : ::gai_strerror(fault);
  Descriptor socket;
  for (const addrinfo* each = found; each != nullptr && !socket.is_open(); each = each->ai_next) {
    Descriptor made(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    set_up(made.number());  // its limit of sending holds for connecting, too
    if (::connect(made.number(), each->ai_addr, each->ai_addrlen) == 0)
      socket = std::move(made);
    else
      why = std::strerror(errno);
  }
  if (found != nullptr) ::freeaddrinfo(found);
  if (socket.is_open()) return socket;
  return runtime_error(
      "host.wire", fmt::format("no connection to {} port {}: {}; a firewall may let ssh through "
                               "and no other port",
                               address, port, why));
}

}  // namespace

WireServer::WireServer(Descriptor listening, int port, std::string word)
    : listening_(std::move(listening)), port_(port), word_(std::move(word)) {
  thread_ = std::thread([this] { serve(); });
}

Result<std::unique_ptr<WireServer>> WireServer::start(const std::string& address,
                                                      std::string word) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in own{};
  own.sin_family = AF_INET;
  socklen_t length = sizeof own;
  auto* name = reinterpret_cast<sockaddr*>(&own);
  // A name, or an address that something on the way translates, is none of ours.
  const bool is_bound = ::inet_pton(AF_INET, address.c_str(), &own.sin_addr) == 1 &&
                        ::bind(socket.number(), name, length) == 0;
  if (!is_bound) own.sin_addr = {};
  if (!socket.is_open() || (!is_bound && ::bind(socket.number(), name, length) != 0) ||
      ::listen(socket.number(), 16) != 0 || ::getsockname(socket.number(), name, &length) != 0)
    return runtime_error("host.wire", fmt::format("cannot listen: {}", std::strerror(errno)));
  return std::unique_ptr<WireServer>(
      new WireServer(std::move(socket), ntohs(own.sin_port), std::move(word)));
}

WireServer::~WireServer() {
  is_over_ = true;
  thread_.join();
}

void WireServer::serve() {
  constexpr int kTickMs = 50;
  while (!is_over_) {
    pollfd wait{listening_.number(), POLLIN, 0};
    if (::poll(&wait, 1, kTickMs) <= 0) continue;
    const Descriptor peer(::accept4(listening_.number(), nullptr, nullptr, SOCK_CLOEXEC));
    if (peer.is_open()) answer(peer.number(), word_);
  }
}

namespace {

/// Seconds of one ping, 0 where the other end is gone.
double ping(int socket) {
  const auto begin = Clock::now();
  char what = kPing;
  const bool is_there = send_all(socket, &what, 1) && receive_all(socket, &what, 1);
  return is_there ? seconds_since(begin) : 0;
}

/// Bytes a second, 0 where the other end is gone: of the best window, as a host that has other work
/// halts now and then, which says nothing of the wire.
double send_for_a_while(int socket) {
  std::vector<char> piece(kPiece + 1, '\0');
  piece[0] = kBytes;
  const auto begin = Clock::now();
  auto window = begin;
  int sent = 0, answered = 0, counted = 0;
  double best = 0;
  while (seconds_since(begin) < kSending || best == 0) {
    if (!send_all(socket, piece.data(), piece.size())) return 0;
    ++sent;
    char what = 0;
    if (sent - answered <= kUnderWay) continue;
    if (!receive_all(socket, &what, 1)) return 0;
    ++answered;
    const double seconds = seconds_since(window);
    if (seconds < kWindow) continue;
    const double bytes =
        static_cast<double>(answered - counted) * static_cast<double>(piece.size());
    if (counted > 0) best = std::max(best, bytes / seconds);  // in the first it gets going
    counted = answered;
    window = Clock::now();
  }
  return best;
}

}  // namespace

Result<WireTimes> measure_wire(const std::string& address, int port, const std::string& word) {
  MOTLEY_ASSIGN(const Descriptor socket, connect_to(address, port));
  const int number = socket.number();
  bool is_there = send_all(number, word.data(), word.size());
  std::vector<double> pings;
  for (int i = 0; is_there && i < kPings; ++i) {
    pings.push_back(ping(number));
    is_there = pings.back() > 0;
  }
  const double rate = is_there ? send_for_a_while(number) : 0;
  if (rate == 0)
    return runtime_error("host.wire",
                         fmt::format("{} port {}: the connection ended", address, port));
  std::nth_element(pings.begin(), pings.begin() + kPings / 2, pings.end());
  return WireTimes{Seconds(pings[kPings / 2] / 2), BytesPerSecond(rate)};
}

}  // namespace motley::run
