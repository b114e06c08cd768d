#include "motley/run/torch/relay.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/run/hosts/child_process.h"
#include "motley/run/torch/exchange/failure.h"
#include "motley/run/torch/exchange/rendezvous.h"
#include "motley/run/torch/exchange/store.h"

namespace motley::run {
namespace {

constexpr std::size_t kMostPiece = std::size_t{1} << 20;
constexpr std::int64_t kMostUnderWay = 8;      // pieces that the other side has not taken
constexpr std::chrono::seconds kRelayLook{1};  // between checks whether the other thread failed
constexpr int kRelayTickMs = 20;
constexpr int kInput = STDIN_FILENO;

bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

/// Waits for input and reads what is there; empty at the end.
std::string read_piece(int descriptor) {
  std::string piece(kMostPiece, '\0');
  ssize_t count = 0;
  do count = ::read(descriptor, piece.data(), piece.size());
  while (count < 0 && errno == EINTR);
  piece.resize(static_cast<std::size_t>(std::max<ssize_t>(0, count)));
  return piece;
}

/// A connection to the launcher's store, for one thread.
class Post {
 public:
  static Result<std::unique_ptr<Post>> open(RankPlace place) {
    auto post = std::make_unique<Post>();
    RendezvousOptions options{.rank = place.rank, .size = place.size};
    options.place = std::move(place);
    options.timeout = Seconds(300);  // rank 0 may start late
    MOTLEY_ASSIGN(post->rendezvous_, Rendezvous::open(options));
    return post;
  }
  const Rendezvous& rendezvous() const { return *rendezvous_; }

  // These throw what c10d throws.
  std::int64_t add(const std::string& key, std::int64_t count) { return store().add(key, count); }
  void put(const std::string& key, std::string_view piece) {
    store().set(key, std::vector<std::uint8_t>(piece.begin(), piece.end()));
  }
  /// Waits; none if it does not come for a while.
  std::optional<std::string> take(const std::string& key) {
    try {
      store().wait({key}, kRelayLook);
    } catch (const std::exception& fault) {
      if (failure_text(fault).find("imeout") == std::string::npos) throw;
      return std::nullopt;
    }
    const std::vector<std::uint8_t> bytes = store().get(key);
    store().deleteKey(key);
    return std::string(bytes.begin(), bytes.end());
  }

 private:
  c10d::Store& store() { return *rendezvous_->state().store; }
  std::unique_ptr<Rendezvous> rendezvous_;
};

/// Returns the place of a process's second connection, because its first may serve the store.
RankPlace as_client(RankPlace place) {
  place.agent_store = true;
  return place;
}

std::string up_key(std::int64_t number) { return fmt::format("relay/up/{}", number); }
std::string down_key(int rank, std::int64_t number) {
  return fmt::format("relay/down/{}/{}", rank, number);
}
std::string up_taken_key(int rank) { return fmt::format("relay/up-taken/{}", rank); }
std::string down_taken_key(int rank) { return fmt::format("relay/down-taken/{}", rank); }

/// The end beside an agent.
class AgentRelay {
 public:
  AgentRelay(int rank, int output, Post& up, Post& down)
      : rank_(rank), output_(output), up_(up), down_(down) {}

  void carry() {
    std::thread down([this] { guarded([this] { carry_down(); }); });
    guarded([this] { carry_up(); });
    down.join();
    if (fault_) std::rethrow_exception(fault_);
  }

 private:
  template <typename Work>
  void guarded(const Work& work) {
    try {
      work();
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      if (!fault_ && !is_over_) fault_ = std::current_exception();
    }
    is_over_ = true;
  }

  void carry_down() {
    for (std::int64_t number = 0; !is_over_;) {
      const auto piece = down_.take(down_key(rank_, number));
      if (!piece) continue;
      ++number;
      down_.add(down_taken_key(rank_), 1);
      if (piece->empty() || !write_all(output_, *piece)) break;
    }
    ::close(output_);
  }

  void carry_up() {
    std::int64_t sent = 0;
    while (!is_over_) {
      pollfd wait{kInput, POLLIN, 0};
      if (::poll(&wait, 1, kRelayTickMs) <= 0) continue;
      const std::string piece = read_piece(kInput);
      while (!is_over_ && sent - up_.add(up_taken_key(rank_), 0) >= kMostUnderWay)
        ::usleep(kRelayTickMs * 1000);
      up_.put(up_key(up_.add("relay/up", 1) - 1), fmt::format("{} {}", rank_, piece));
      ++sent;
      if (piece.empty()) return;
    }
  }

  int rank_, output_;
  Post &up_, &down_;
  std::atomic<bool> is_over_ = false;
  std::mutex mutex_;  // guards fault_
  std::exception_ptr fault_;
};

/// The end beside the coordinator.
class LeadRelay {
 public:
  LeadRelay(std::string path, Post& up, Post& down)
      : path_(std::move(path)), up_(up), down_(down) {}

  void carry() {
    std::thread up([this] { guarded([this] { carry_up(); }); });
    guarded([this] { carry_down(); });
    up.join();
    if (fault_) std::rethrow_exception(fault_);
  }

 private:
  /// A rank's socket. Both threads use it: it is never replaced or closed.
  struct Line {
    int rank = 0;
    Descriptor socket;
    std::int64_t sent = 0, taken = 0;
    bool is_ended = false;  // the coordinator's side
  };

  template <typename Work>
  void guarded(const Work& work) {
    try {
      work();
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      if (!fault_ && !is_over_) fault_ = std::current_exception();
    }
    is_over_ = true;
  }

  Line& line_of(int rank) {
    const std::scoped_lock lock(mutex_);
    std::unique_ptr<Line>& line = lines_[rank];
    if (line) return *line;
    line = std::make_unique<Line>();
    line->rank = rank;
    line->socket = Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof address.sun_path - 1);
    if (::connect(line->socket.number(), reinterpret_cast<sockaddr*>(&address), sizeof address) !=
        0)
      throw std::runtime_error(path_ + ": " + std::strerror(errno));
    write_all(line->socket.number(), fmt::format("rank {}\n", rank));
    return *line;
  }

  void carry_up() {
    for (std::int64_t number = 0; !is_over_;) {
      const auto piece = up_.take(up_key(number));
      if (!piece) continue;
      ++number;
      const std::size_t space = piece->find(' ');
      const int rank = static_cast<int>(find_integer(piece->substr(0, space)).value_or(-1));
      if (rank < 0 || space == std::string::npos) continue;
      const int socket = line_of(rank).socket.number();
      up_.add(up_taken_key(rank), 1);
      const std::string_view rest = std::string_view(*piece).substr(space + 1);
      if (rest.empty() || !write_all(socket, rest)) ::shutdown(socket, SHUT_WR);
    }
  }

  /// Returns lines that have not ended and whose rank keeps up.
  std::vector<Line*> open_lines() {
    const std::scoped_lock lock(mutex_);
    std::vector<Line*> open;
    for (const auto& [rank, line] : lines_) {
      if (line->is_ended) continue;
      if (line->sent - line->taken >= kMostUnderWay)
        line->taken = down_.add(down_taken_key(rank), 0);
      if (line->sent - line->taken < kMostUnderWay) open.push_back(line.get());
    }
    return open;
  }

  void carry_down() {
    while (!is_over_) {
      const std::vector<Line*> open = open_lines();
      std::vector<pollfd> waits{{kInput, POLLIN, 0}};
      for (const Line* line : open) waits.push_back({line->socket.number(), POLLIN, 0});
      ::poll(waits.data(), waits.size(), kRelayTickMs);
      for (std::size_t i = 0; i < open.size(); ++i)
        if (waits[i + 1].revents != 0) send_down(*open[i]);
      // The coordinator's end, after everything that it sent.
      if (waits[0].revents != 0 && read_piece(kInput).empty()) return;
    }
  }

  void send_down(Line& line) {
    const std::string piece = read_piece(line.socket.number());
    down_.put(down_key(line.rank, line.sent++), piece);
    line.is_ended = piece.empty();
  }

  std::string path_;
  Post &up_, &down_;
  std::atomic<bool> is_over_ = false;
  std::mutex mutex_;  // guards lines_ (but not their contents) and fault_
  std::map<int, std::unique_ptr<Line>> lines_;
  std::exception_ptr fault_;
};

}  // namespace

Result<void> carry_bytes(const RankPlace& place, const std::string& path,
                         const Reporter& reporter) {
  MOTLEY_ASSIGN(const auto up, Post::open(place));
  MOTLEY_ASSIGN(const auto down, Post::open(as_client(place)));
  MOTLEY_ASSIGN(const std::string address, up->rendezvous().own_address());
  reporter.event("relay", Json{{"address", address}});
  try {
    if (path.empty())
      AgentRelay(place.rank, reporter.output(), *up, *down).carry();
    else
      LeadRelay(path, *up, *down).carry();
  } catch (const std::exception& fault) {
    return runtime_error("run.peer-lost", fmt::format("rank {}: the launcher's store is gone: {}",
                                                      place.rank, failure_text(fault)));
  }
  return {};
}

}  // namespace motley::run
