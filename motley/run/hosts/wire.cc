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
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "motley/base/statistics.h"
#include "motley/run/hosts/elapsed.h"

namespace motley::run {
namespace {

constexpr std::size_t kPings = 40, kLeastPings = 3;
constexpr double kPinging = 0.5;  // seconds
constexpr double kWindow = 0.2;   // seconds in which a rate is counted
constexpr std::size_t kMostWindows = 6;
constexpr double kSettled = 0.03;  // by which two windows in a row may differ
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
  for (Peer& peer : peers_) {
    ::shutdown(peer.socket.number(), SHUT_RDWR);
    peer.thread.join();
  }
}

void WireServer::drop_done() {
  for (auto peer = peers_.begin(); peer != peers_.end();) {
    if (peer->is_done) peer->thread.join();
    peer = peer->is_done ? peers_.erase(peer) : std::next(peer);
  }
}

void WireServer::serve() {
  constexpr int kTickMs = 50;
  while (!is_over_) {
    drop_done();
    pollfd wait{listening_.number(), POLLIN, 0};
    if (::poll(&wait, 1, kTickMs) <= 0) continue;
    Descriptor socket(::accept4(listening_.number(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket.is_open()) continue;
    Peer& peer = peers_.emplace_back();
    peer.socket = std::move(socket);
    peer.thread = std::thread([this, &peer] {
      answer(peer.socket.number(), word_);
      peer.is_done = true;
    });
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

/// The median of many, of few where each takes long; 0 where the other end is gone.
double ping_for_a_while(int socket) {
  std::vector<double> pings;
  const auto begin = Clock::now();
  while (pings.size() < kPings && (pings.size() < kLeastPings || seconds_since(begin) < kPinging)) {
    pings.push_back(ping(socket));
    if (pings.back() == 0) return 0;
  }
  return upper_median(std::move(pings));
}

/// Pieces that are sent, so many under way at a time.
class Sending {
 public:
  explicit Sending(int socket) : socket_(socket), piece_(kPiece + 1, '\0') { piece_[0] = kBytes; }

  /// Sends until the time is over and something was answered: bytes a second from one answer to
  /// another, 0 where the other end is gone.
  double go_on(double seconds) {
    const auto begin = at_;
    const std::int64_t counted = answered_;
    while (answered_ == counted || std::chrono::duration<double>(at_ - begin).count() < seconds) {
      if (sent_ - answered_ < kUnderWay) {
        if (!send_all(socket_, piece_.data(), piece_.size())) return 0;
        ++sent_;
        if (!take_answers(MSG_DONTWAIT)) return 0;
      } else if (!take_answers(0)) {
        return 0;
      }
    }
    const double bytes = static_cast<double>(answered_ - counted) * static_cast<double>(kPiece);
    return bytes / std::chrono::duration<double>(at_ - begin).count();
  }

 private:
  /// Those that are there; by `flags`, waits for one. False: the other end is gone.
  bool take_answers(int flags) {
    std::array<char, kUnderWay> what;
    const ssize_t got = ::recv(socket_, what.data(), what.size(), flags);
    if (got <= 0) return got < 0 && flags != 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    answered_ += got;
    at_ = Clock::now();
    return true;
  }

  int socket_;
  std::vector<char> piece_;
  std::int64_t sent_ = 0, answered_ = 0;
  Clock::time_point at_ = Clock::now();  // of the last answer
};

/// Of two windows in a row that agree, else the median: a receiver that was halted reads in the
/// next window what came meanwhile, so that no single one says what the wire gives.
double send_until_settled(Sending& sending) {
  if (sending.go_on(kWindow) == 0) return 0;  // it gets going
  std::vector<double> rates;
  while (rates.size() < kMostWindows) {
    rates.push_back(sending.go_on(kWindow));
    if (rates.back() == 0) return 0;
    if (rates.size() < 2) continue;
    const double last = rates.back(), before = rates[rates.size() - 2];
    if (std::abs(last - before) <= kSettled * last) return (last + before) / 2;
  }
  return upper_median(std::move(rates));
}

double send_beside_others(Sending& sending, double seconds) {
  return sending.go_on(seconds / 4) == 0 ? 0 : sending.go_on(seconds * 3 / 4);
}

}  // namespace

Result<WireTimes> measure_wire(const std::string& address, int port, const std::string& word,
                               const WireAsk& ask) {
  MOTLEY_ASSIGN(const Descriptor socket, connect_to(address, port));
  WireTimes times;
  double found = 0;
  if (send_all(socket.number(), word.data(), word.size())) {
    Sending sending(socket.number());
    if (ask.what == WireAsk::What::kPing)
      times.latency = Seconds((found = ping_for_a_while(socket.number())) / 2);
    else
      times.bandwidth =
          BytesPerSecond(found = ask.what == WireAsk::What::kSettle
                                     ? send_until_settled(sending)
                                     : send_beside_others(sending, ask.seconds.value));
  }
  if (found > 0) return times;
  return runtime_error("host.wire", fmt::format("{} port {}: the connection ended", address, port));
}

}  // namespace motley::run
