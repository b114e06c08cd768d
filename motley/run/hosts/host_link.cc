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

}  // namespace

std::string content_name(std::string_view bytes) {
  return fmt::format("{}-{}", hash_hex(bytes), bytes.size());
}

HostLink::HostLink(std::string host, std::vector<std::string> command)
    : host_(std::move(host)), command_(std::move(command)), most_silence_(kMostSilence) {}

Result<std::unique_ptr<HostLink>> HostLink::start(const std::string& host,
                                                  std::vector<std::string> command) {
  std::unique_ptr<HostLink> link(new HostLink(host, std::move(command)));
  MOTLEY_ASSIGN(link->words_, make_words_file());
  SpawnOptions options;
  options.arguments = link->command_;
  options.takes_input = true;
  options.error_path = link->words_;
  sigemptyset(&options.mask);
  // Ctrl-C reaches the whole foreground group; the agent learns of it through the pipe.
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
  constexpr double kPatience = 3;  // seconds; for its processes and folder
  const auto begin = Clock::now();
  while (!is_lost_ && child_.output.is_open() && seconds_since(begin) < kPatience)
    (void)read(kWaitMs);
  if (child_.pid > 0) {
    ::kill(child_.pid, SIGKILL);
    wait_for_exit(child_.pid);
  }
  std::error_code code;
  if (!words_.empty()) fs::remove(words_, code);
}

tl::unexpected<Error> HostLink::lost(const std::string& why) {
  is_lost_ = true;
  std::string message = fmt::format("host {}: {}", host_, why);
  const auto words = words_.empty() ? Result<std::string>("") : read_file(words_);
  const std::string said(trim(words && !trim(*words).empty() ? *words : reader_.chatter()));
  if (!said.empty())
    message += fmt::format("; it said: {}",
                           quote(said.substr(said.size() - std::min(said.size(), kMostWords))));
  if (scratch_.empty()) return runtime_error("host.unreachable", std::move(message));
  return runtime_error("host.lost",
                       message +
                           "; its agent, or the way to it, is gone: run the same command when "
                           "it is back, or leave its devices out (--exclude)");
}

Result<void> HostLink::read(int wait_ms) {
  pollfd wait{child_.output.number(), POLLIN, 0};
  if (child_.output.is_open() && ::poll(&wait, 1, wait_ms) > 0) {
    heard_at_ = Clock::now();
    if (!reader_.read_some(child_.output.number())) child_.output.reset();
  }
  while (auto frame = reader_.next()) {
    const std::string is = frame->head.value("is", "");
    if (is == "outlives") standby_port_ = frame->head.value("port", 0);
    if (is == "remembered") remembered_ = frame->head.value("version", std::int64_t{0});
    if (is == "outlives" || is == "remembered") continue;
    const auto arrival = arrivals_.find(frame->head.value("number", 0));
    if (arrival != arrivals_.end())
      arrival->second.take(*frame);
    else
      waiting_.push_back(std::move(*frame));
  }
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
  outbox_.add(std::move(head), bytes);
  const auto sent = outbox_.write_all(child_.input.number(), most_silence_);
  if (sent) return {};
  return lost(sent.error().code == "run.timeout" ? sent.error().message : "connection ended");
}

Result<void> HostLink::post(Json head, std::string_view bytes) {
  const std::scoped_lock lock(writing_);
  if (!child_.input.is_open()) return lost("its connection is closed");
  outbox_.add(std::move(head), bytes);
  if (!outbox_.write_some(child_.input.number())) return lost("connection ended");
  return {};
}

Result<void> HostLink::make_standby(const std::string& host, const std::string& word,
                                    double patience) {
  if (std::exchange(is_standby_, true)) return {};
  return post({{"do", "outlive"}, {"host", host}, {"word", word}, {"patience", patience}});
}

bool HostLink::has_more() const {
  const std::scoped_lock lock(writing_);
  return outbox_.waiting() > 0;
}

void HostLink::beat() {
  const std::unique_lock lock(writing_, std::try_to_lock);
  if (!lock || !child_.input.is_open()) return;
  if (outbox_.waiting() == 0) outbox_.add({{"do", "beat"}});
  (void)outbox_.write_some(child_.input.number());
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
    if (!child_.output.is_open()) return lost("the connection ended");
    if (seconds_since(begin) > timeout_s)
      return lost(fmt::format("no answer within {:.0f} s", timeout_s));
    MOTLEY_RETURN_IF_ERROR(read(kWaitMs));
  }
}

Result<Frame> HostLink::ask(Json head, const std::string& is, double timeout_s) {
  MOTLEY_RETURN_IF_ERROR(send(std::move(head)));
  return wait_for(is, timeout_s);
}

/// Returns an error of the host during a long transfer. Keeps answers.
Result<void> HostLink::check_refused() {
  MOTLEY_RETURN_IF_ERROR(read(0));
  for (const Frame& frame : waiting_)
    if (frame.head.value("is", "") == "failed") return tl::make_unexpected(wait_for("", 0).error());
  return {};
}

Result<void> HostLink::put_text(std::string_view text, const std::string& path) {
  bool is_end = false;
  while (!is_end) {
    const std::string_view piece = text.substr(0, kMostFrameBytes);
    text.remove_prefix(piece.size());
    is_end = text.empty();
    MOTLEY_RETURN_IF_ERROR(send({{"do", "write"}, {"path", path}, {"end", is_end}}, piece));
    MOTLEY_RETURN_IF_ERROR(check_refused());
  }
  return {};
}

Result<void> HostLink::put(const std::string& from, const std::string& path) {
  MOTLEY_ASSIGN(const MappedFile file, MappedFile::open(from));
  return put_text(file.text(), path);
}

Result<void> HostLink::link(const std::string& path, const std::string& target) {
  return send({{"do", "link"}, {"path", path}, {"target", target}});
}

Result<bool> HostLink::has(const std::string& name) {
  constexpr double kPatience = 60;
  MOTLEY_ASSIGN(const Frame known, ask({{"do", "have"}, {"hash", name}}, "have", kPatience));
  return known.head.value("there", false);
}

Result<void> HostLink::keep(const std::string& name,
                            const std::function<Result<void>(const Sink&)>& write) {
  const auto give = [&](std::string_view piece, bool is_end) -> Result<void> {
    MOTLEY_RETURN_IF_ERROR(send({{"do", "keep"}, {"hash", name}, {"end", is_end}}, piece));
    return check_refused();
  };
  const Sink sink = [&](std::string_view piece) -> Result<void> {
    for (; !piece.empty(); piece.remove_prefix(std::min(piece.size(), kMostFrameBytes)))
      MOTLEY_RETURN_IF_ERROR(give(piece.substr(0, kMostFrameBytes), false));
    return {};
  };
  MOTLEY_RETURN_IF_ERROR(write(sink));
  return give({}, true);
}

Result<void> HostLink::link_kept(const std::string& name, const std::string& path) {
  return link(path, fmt::format("{}/files/{}", cache_, name));
}

Result<void> HostLink::share(const std::string& from, const std::string& path) {
  MOTLEY_ASSIGN(const MappedFile file, MappedFile::open(from));
  return share_named(content_name(file.text()), file.text(), path);
}

Result<void> HostLink::share_named(const std::string& name, std::string_view bytes,
                                   const std::string& path) {
  MOTLEY_ASSIGN(const bool is_there, has(name));
  if (!is_there) MOTLEY_RETURN_IF_ERROR(keep(name, [&](const Sink& sink) { return sink(bytes); }));
  return link_kept(name, path);
}

Result<int> HostLink::begin_fetch(Json head, const std::string& path, const std::string& into) {
  const int number = ++fetches_;
  arrivals_.emplace(number, Arrival(path, into));
  head["do"] = "fetch";
  head["number"] = number;
  MOTLEY_RETURN_IF_ERROR(send(std::move(head)));
  return number;
}

Result<int> HostLink::begin_fetch(const std::string& path, const std::string& into) {
  return begin_fetch({{"path", path}}, path, into);
}

Result<void> HostLink::fetch_kept(const std::string& path, const std::string& into,
                                  double patience) {
  MOTLEY_ASSIGN(const int number, begin_fetch({{"kept", path}}, path, into));
  return await(number, path, patience);
}

Result<void> HostLink::fetch(const std::string& path, const std::string& into, double patience) {
  MOTLEY_ASSIGN(const int number, begin_fetch(path, into));
  return await(number, path, patience);
}

Result<void> HostLink::await(int number, const std::string& path, double patience) {
  const Arrival& coming = arrival(number);
  auto since = Clock::now();
  Result<void> listened;
  while (!coming.is_over() && listened && seconds_since(since) < patience) {
    const std::int64_t before = coming.bytes() + coming.files();
    MOTLEY_RETURN_IF_ERROR(read(kWaitMs));
    if (coming.bytes() + coming.files() > before) since = Clock::now();
    if (!child_.output.is_open() && !coming.is_over()) listened = lost("connection ended");
  }
  const bool is_over = coming.is_over();
  Result<void> outcome = listened ? coming.outcome() : listened;
  forget(number);
  if (listened && !is_over)
    return lost(fmt::format("nothing of {} came for {:.0f} s", path, patience));
  if (!listened || outcome) return outcome;
  return with_context("host " + host_, std::move(outcome).error());
}

Result<void> HostLink::listen() {
  MOTLEY_RETURN_IF_ERROR(read(0));
  if (const std::unique_lock lock(writing_, std::try_to_lock); lock && child_.input.is_open())
    (void)outbox_.write_some(child_.input.number());  // a failure also shows up in reading
  if (!child_.output.is_open() && waiting_.empty()) return lost("connection ended");
  if (seconds_since(heard_at_) > most_silence_)
    return lost(fmt::format("nothing was heard for {:.0f} s", most_silence_));
  return {};
}

Result<std::vector<Frame>> HostLink::take() {
  MOTLEY_RETURN_IF_ERROR(listen());
  return std::exchange(waiting_, {});
}

}  // namespace motley::run
