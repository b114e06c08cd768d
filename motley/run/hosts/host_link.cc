#include "motley/run/hosts/host_link.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "motley/base/file.h"
#include "motley/base/random.h"
#include "motley/base/text.h"
#include "motley/run/hosts/agent.h"
#include "motley/run/hosts/elapsed.h"

namespace motley::run {
namespace {

namespace fs = std::filesystem;
constexpr int kWaitMs = 100;
constexpr std::size_t kMostWords = 400;

Result<std::string> make_words_file() {
  std::string name = (fs::temp_directory_path() / "motley-words-XXXXXX").string();
  const int file = ::mkstemp(name.data());
  if (file < 0) return runtime_error("host.start", name + ": cannot be written");
  ::close(file);
  return name;
}

std::string_view bytes_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

/// What fetch receives, written below a folder.
class Receiver {
 public:
  Receiver(std::string root, std::string into) : root_(std::move(root)), into_(std::move(into)) {}

  Result<void> take(const Frame& frame) {
    const fs::path path = place(frame.head.value("path", ""));
    std::error_code code;
    fs::create_directories(path.parent_path(), code);
    if (frame.head.value("is", "") == "link") {
      fs::remove(path, code);
      fs::create_symlink(frame.head.value("target", ""), path, code);
      return code ? runtime_error("host.fetch", path.string() + ": " + code.message())
                  : Result<void>();
    }
    const auto how = std::ios::binary | (path == open_ ? std::ios::app : std::ios::trunc);
    std::ofstream stream(path, how);
    stream.write(frame.bytes.data(), static_cast<std::streamsize>(frame.bytes.size()));
    stream.close();
    open_ = frame.head.value("end", true) ? fs::path() : path;
    return stream.fail() ? runtime_error("host.fetch", path.string() + ": cannot be written")
                         : Result<void>();
  }

 private:
  /// Never outside of the folder, whatever the host says.
  fs::path place(const std::string& path) const {
    const fs::path inside = fs::path(path).lexically_normal().lexically_relative(root_);
    const bool is_inside = !inside.empty() && *inside.begin() != ".." && inside != ".";
    return is_inside ? fs::path(into_) / inside : fs::path(into_) / fs::path(path).filename();
  }

  std::string root_, into_;
  fs::path open_;  // of which more comes
};

}  // namespace

Result<std::unique_ptr<HostLink>> HostLink::start(const std::string& host,
                                                  std::vector<std::string> command) {
  std::unique_ptr<HostLink> link(new HostLink(host, std::move(command)));
  MOTLEY_ASSIGN(link->words_, make_words_file());
  SpawnOptions options;
  options.arguments = link->command_;
  options.takes_input = true;
  options.error_path = link->words_;
  sigemptyset(&options.mask);
  // Ctrl-C reaches the whole foreground group; what it means is said through the pipe.
  sigaddset(&options.mask, SIGINT);
  MOTLEY_ASSIGN(link->child_, spawn(options));
  return link;
}

std::unique_ptr<HostLink> HostLink::over(const std::string& host, Descriptor socket) {
  std::unique_ptr<HostLink> link(new HostLink(host, {}));
  link->child_.input = Descriptor(::fcntl(socket.number(), F_DUPFD_CLOEXEC, 0));
  link->child_.output = std::move(socket);
  return link;
}

HostLink::~HostLink() {
  {
    const std::scoped_lock lock(writing_);
    if (child_.input.is_open()) ::shutdown(child_.input.number(), SHUT_WR);  // if it is a socket
    child_.input.reset();
  }
  constexpr double kPatience = 3;  // for its processes and folder
  const auto begin = Clock::now();
  while (child_.output.is_open() && seconds_since(begin) < kPatience) (void)read(kWaitMs);
  if (child_.pid > 0) {
    ::kill(child_.pid, SIGKILL);
    wait_for_exit(child_.pid);
  }
  std::error_code code;
  if (!words_.empty()) fs::remove(words_, code);
}

tl::unexpected<Error> HostLink::lost(const std::string& why) {
  std::string message = fmt::format("host {}: {}", host_, why);
  const auto words = words_.empty() ? Result<std::string>("") : read_file(words_);
  const std::string said(trim(words && !trim(*words).empty() ? *words : reader_.chatter()));
  if (!said.empty())
    message += fmt::format("; it said: {}",
                           quote(said.substr(said.size() - std::min(said.size(), kMostWords))));
  return runtime_error(scratch_.empty() ? "host.unreachable" : "host.lost", std::move(message));
}

Result<void> HostLink::read(int wait_ms) {
  pollfd wait{child_.output.number(), POLLIN, 0};
  if (child_.output.is_open() && ::poll(&wait, 1, wait_ms) > 0) {
    heard_at_ = Clock::now();
    if (!reader_.read_some(child_.output.number())) child_.output.reset();
  }
  while (auto frame = reader_.next()) waiting_.push_back(std::move(*frame));
  return {};
}

Result<Json> HostLink::greet(double timeout_s) {
  auto hello = wait_for("hello", timeout_s);
  if (!hello) {
    Error error = hello.error();
    if (!command_.empty())
      error.message += fmt::format(
          "; tried: {}; see that this command works without a password and that motley lies there "
          "at the same path or in the PATH; a host that is gone is left out by --exclude of its "
          "devices, or by probing again",
          fmt::join(command_, " "));
    return tl::make_unexpected(std::move(error));
  }
  scratch_ = hello->head.value("scratch", "");
  cache_ = hello->head.value("cache", "");
  return std::move(hello->head);
}

Result<void> HostLink::send(Json head, std::string_view bytes) {
  const std::scoped_lock lock(writing_);
  if (!child_.input.is_open()) return lost("its connection is closed");
  if (!write_frame(child_.input.number(), std::move(head), bytes)) return lost("connection ended");
  return {};
}

void HostLink::beat() {
  const std::scoped_lock lock(writing_);
  if (child_.input.is_open()) (void)write_frame(child_.input.number(), {{"do", "beat"}});
}

Result<Frame> HostLink::wait_for(const std::string& is, double timeout_s) {
  const auto begin = Clock::now();
  while (true) {
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      const std::string what = waiting_[i].head.value("is", "");
      if (what != is && what != "failed") continue;
      Frame frame = std::move(waiting_[i]);
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
      if (what == is) return frame;
      return runtime_error(frame.head.value("code", "host.failed"),
                           fmt::format("host {}: {}", host_, frame.head.value("message", "")));
    }
    if (!child_.output.is_open()) return lost("no connection");
    if (seconds_since(begin) > timeout_s)
      return lost(fmt::format("no answer within {:.0f} s", timeout_s));
    MOTLEY_RETURN_IF_ERROR(read(kWaitMs));
  }
}

Result<Frame> HostLink::ask(Json head, const std::string& is, double timeout_s) {
  MOTLEY_RETURN_IF_ERROR(send(std::move(head)));
  return wait_for(is, timeout_s);
}

Result<void> HostLink::put_text(std::string_view text, const std::string& path) {
  bool is_end = false;
  while (!is_end) {
    const std::string_view piece = text.substr(0, kMostFrameBytes);
    text.remove_prefix(piece.size());
    is_end = text.empty();
    MOTLEY_RETURN_IF_ERROR(send({{"do", "write"}, {"path", path}, {"end", is_end}}, piece));
  }
  return {};
}

Result<void> HostLink::put(const std::string& from, const std::string& path) {
  MOTLEY_ASSIGN(const MappedFile file, MappedFile::open(from));
  return put_text(bytes_of(file), path);
}

Result<void> HostLink::link(const std::string& path, const std::string& target) {
  return send({{"do", "link"}, {"path", path}, {"target", target}});
}

Result<void> HostLink::share(const std::string& from, const std::string& path) {
  constexpr double kPatience = 60;
  MOTLEY_ASSIGN(const MappedFile file, MappedFile::open(from));
  std::string_view rest = bytes_of(file);
  const std::string hash = fmt::format("{}-{}", hash_hex(rest), rest.size());
  MOTLEY_ASSIGN(const Frame known, ask({{"do", "have"}, {"hash", hash}}, "have", kPatience));
  bool is_end = known.head.value("there", false);
  while (!is_end) {
    const std::string_view piece = rest.substr(0, kMostFrameBytes);
    rest.remove_prefix(piece.size());
    is_end = rest.empty();
    MOTLEY_RETURN_IF_ERROR(send({{"do", "keep"}, {"hash", hash}, {"end", is_end}}, piece));
  }
  return link(path, fmt::format("{}/files/{}", cache_, hash));
}

Result<void> HostLink::fetch(const std::string& path, const std::string& into, double timeout_s) {
  MOTLEY_RETURN_IF_ERROR(send({{"do", "fetch"}, {"path", path}}));
  Receiver receiver(path, into);
  const auto begin = Clock::now();
  for (bool is_done = false; !is_done;) {
    if (!child_.output.is_open()) return lost("connection ended");
    if (seconds_since(begin) > timeout_s) return lost("its files did not come");
    MOTLEY_RETURN_IF_ERROR(read(kWaitMs));
    std::vector<Frame> others;
    for (Frame& frame : std::exchange(waiting_, {})) {
      const std::string is = frame.head.value("is", "");
      if (is == "file" || is == "link") MOTLEY_RETURN_IF_ERROR(receiver.take(frame));
      is_done = is_done || is == "fetched";
      if (is != "file" && is != "link" && is != "fetched") others.push_back(std::move(frame));
    }
    waiting_ = std::move(others);
  }
  return {};
}

Result<std::vector<Frame>> HostLink::take() {
  MOTLEY_RETURN_IF_ERROR(read(0));
  if (!child_.output.is_open() && waiting_.empty()) return lost("connection ended");
  if (seconds_since(heard_at_) > kMostSilence)
    return lost(fmt::format("nothing was heard for {:.0f} s", kMostSilence));
  return std::exchange(waiting_, {});
}

}  // namespace motley::run
