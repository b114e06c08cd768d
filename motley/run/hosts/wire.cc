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
#include <optional>
#include <utility>
#include <vector>

#include "motley/base/statistics.h"
#include "motley/run/hosts/elapsed.h"
#include "motley/run/hosts/here.h"

namespace motley::run {
namespace {

constexpr std::size_t kPings = 40, kLeastPings = 3;
constexpr double kPinging = 0.5;  // seconds
constexpr double kWindow = 0.2;   // seconds over which a rate is measured
constexpr std::size_t kMostWindows = 6;
constexpr double kSettled = 0.03;  // largest relative difference of two consecutive windows
constexpr std::size_t kPiece = std::size_t{1} << 16;
constexpr std::uint64_t kReportBytes = std::uint64_t{1} << 18;  // or
constexpr double kReportEvery = 0.005;                          // seconds
constexpr int kMostUnsent = 1 << 19;  // bytes buffered on this host beyond what the network takes
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

void count(int socket) {
  std::vector<char> piece(kPiece);
  std::uint64_t total = 0, said = 0;
  auto said_at = Clock::now();
  while (true) {
    const ssize_t got = ::recv(socket, piece.data(), piece.size(), 0);
    if (got <= 0) return;
    total += static_cast<std::uint64_t>(got);
    if (total - said < kReportBytes && seconds_since(said_at) < kReportEvery) continue;
    said = total;
    said_at = Clock::now();
    if (!send_all(socket, reinterpret_cast<const char*>(&total), sizeof total)) return;
  }
}

/// Answers pings; after kBytes counts what arrives.
void answer(int socket, const std::string& word) {
  set_up(socket);
  std::string told(word.size(), '\0');
  if (!receive_all(socket, told.data(), told.size()) || told != word) return;
  char what = 0;
  while (receive_all(socket, &what, 1)) {
    if (what == kBytes) return count(socket);
    if (what == kPing && !send_all(socket, &what, 1)) return;
  }
}

Result<Descriptor> open_wire(const std::string& address, int port) {
  auto socket = connect_to(address, port, kWirePatience);
  if (socket) return socket;
  return runtime_error(
      "host.wire", fmt::format("no connection to {} port {}: {}; a firewall may let ssh through "
                               "and no other port",
                               address, port, socket.error().message));
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
  // A name, or an address that is translated on the way, is not one of ours.
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

/// Returns the seconds of one ping, 0 if the other end is gone.
double ping(int socket) {
  const auto begin = Clock::now();
  char what = kPing;
  const bool is_there = send_all(socket, &what, 1) && receive_all(socket, &what, 1);
  return is_there ? seconds_since(begin) : 0;
}

/// Returns the lower quartile of many pings, or of few if each is slow: a busy host answers late,
/// which does not reflect the network. 0 if the other end is gone.
double ping_for_a_while(int socket) {
  std::vector<double> pings;
  const auto begin = Clock::now();
  while (pings.size() < kPings && (pings.size() < kLeastPings || seconds_since(begin) < kPinging)) {
    pings.push_back(ping(socket));
    if (pings.back() == 0) return 0;
  }
  std::nth_element(pings.begin(), pings.begin() + static_cast<std::ptrdiff_t>(pings.size() / 4),
                   pings.end());
  return pings[pings.size() / 4];
}

/// Sends bytes as fast as the network takes them; the receiver counts them.
class Sending {
 public:
  explicit Sending(int socket) : socket_(socket), piece_(kPiece, '\0') {
    // Data still unsent at the end must not disturb the next measurement.
    const linger dropped{1, 0};
    ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &dropped, sizeof dropped);
    ::setsockopt(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kMostUnsent, sizeof kMostUnsent);
    is_there_ = send_all(socket, &kBytes, 1);
  }

  /// Sends for `seconds` and until a count. Returns bytes per second; 0: the other end is gone.
  double go_on(double seconds) {
    const auto begin = counted_at_;
    const std::uint64_t before = counted_;
    while (counted_ == before || between(begin, counted_at_) < seconds)
      if (!exchange(kWirePatience)) return 0;
    return static_cast<double>(counted_ - before) / between(begin, counted_at_);
  }

  /// Returns the bytes that arrive within `seconds`, even if others leave room for only few.
  std::optional<double> go_on_for(double seconds) {
    const auto begin = Clock::now();
    const std::uint64_t before = counted_;
    for (double left = seconds; left > 0; left = seconds - seconds_since(begin))
      if (!exchange(left) && !is_there_) return std::nullopt;
    return static_cast<double>(counted_ - before);
  }

 private:
  static double between(Clock::time_point begin, Clock::time_point end) {
    return std::chrono::duration<double>(end - begin).count();
  }

  /// Waits for counts and for room, and handles both. False: neither came.
  bool exchange(double seconds) {
    pollfd wait{socket_, POLLIN | POLLOUT, 0};
    if (!is_there_ || ::poll(&wait, 1, static_cast<int>(1000 * seconds) + 1) <= 0) return false;
    if ((wait.revents & POLLIN) != 0) take_counts();
    if ((wait.revents & POLLOUT) != 0)
      check(::send(socket_, piece_.data(), piece_.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
    else if ((wait.revents & POLLIN) == 0)
      is_there_ = false;  // an end or an error
    return is_there_;
  }

  void take_counts() {
    const ssize_t got =
        ::recv(socket_, said_.data() + partial_, said_.size() - partial_, MSG_DONTWAIT);
    if (!check(got)) return;
    partial_ += static_cast<std::size_t>(got);
    const std::size_t whole = partial_ / sizeof counted_ * sizeof counted_;
    if (whole == 0) return;
    std::memcpy(&counted_, said_.data() + whole - sizeof counted_, sizeof counted_);
    counted_at_ = Clock::now();
    std::memmove(said_.data(), said_.data() + whole, partial_ - whole);
    partial_ -= whole;
  }

  bool check(ssize_t done) {
    if (done == 0 || (done < 0 && errno != EAGAIN && errno != EWOULDBLOCK)) is_there_ = false;
    return done > 0;
  }

  int socket_;
  bool is_there_ = true;  // the other end
  std::vector<char> piece_;
  std::array<char, 512> said_;
  std::size_t partial_ = 0;  // bytes of said_ after its last whole count
  std::uint64_t counted_ = 0;
  Clock::time_point counted_at_ = Clock::now();
};

/// Returns the rate of two consecutive windows that agree, else the median. A stalled receiver
/// reads a backlog in the next window, so no single window is reliable.
double send_until_settled(Sending& sending) {
  if (sending.go_on(kWindow) == 0) return 0;  // warms up
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

/// Measures for the same time at all hosts, even those that get little bandwidth.
double send_beside_others(Sending& sending, double seconds) {
  if (!sending.go_on_for(seconds / 2)) return 0;
  const auto bytes = sending.go_on_for(seconds / 2);
  return bytes ? std::max(1.0, *bytes) / (seconds / 2) : 0;
}

}  // namespace

Result<WireTimes> measure_wire(const std::string& address, int port, const std::string& word,
                               const WireAsk& ask) {
  MOTLEY_ASSIGN(const Descriptor socket, open_wire(address, port));
  WireTimes times;
  double found = 0;
  if (!send_all(socket.number(), word.data(), word.size())) {
  } else if (ask.what == WireAsk::What::kPing) {
    times.latency = Seconds((found = ping_for_a_while(socket.number())) / 2);
  } else {
    Sending sending(socket.number());
    found = ask.what == WireAsk::What::kSettle ? send_until_settled(sending)
                                               : send_beside_others(sending, ask.seconds.value);
    times.bandwidth = BytesPerSecond(found);
  }
  if (found > 0) return times;
  return runtime_error("host.wire", fmt::format("{} port {}: the connection ended", address, port));
}

}  // namespace motley::run
