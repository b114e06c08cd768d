#include "motley/run/hosts/control_socket.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "motley/base/file.h"
#include "motley/base/json.h"

namespace motley::run {
namespace {

constexpr int kMostCallers = 16;                 // waiting to be accepted
constexpr std::size_t kMostQuestion = 64 << 10;  // bytes
constexpr double kMostSeconds = 5;               // seconds in which a question must arrive

}  // namespace

Result<std::unique_ptr<ControlSocket>> ControlSocket::open(int port, const std::string& file,
                                                           Callers callers) {
  auto listening = listen_here(port, kMostCallers, callers);
  if (!listening)
    return runtime_error("run.port", fmt::format("port {}: {}; give another one (--listen)", port,
                                                 listening.error().message));
  const std::string word = random_word();
  const Json address{{"port", listening->port}, {"word", word}, {"pid", ::getpid()}};
  if (const auto written = write_file_atomic(file, address.dump(), Readers::kOwner); !written)
    return runtime_error("run.directory", written.error().message);
  return std::unique_ptr<ControlSocket>(
      new ControlSocket(std::move(listening->socket), listening->port, file, word));
}

ControlSocket::~ControlSocket() {
  std::error_code code;
  std::filesystem::remove(file_, code);
}

void ControlSocket::let_in() {
  for (;;) {
    Descriptor socket(::accept4(socket_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.is_open()) return;
    callers_.emplace(next_++, Caller{std::move(socket), "", Clock::now()});
  }
}

std::vector<ControlSocket::Question> ControlSocket::take() {
  let_in();
  std::vector<Question> questions;
  for (auto each = callers_.begin(); each != callers_.end();) {
    auto& [id, caller] = *each;
    char bytes[4096];
    ssize_t count = 0;
    while ((count = ::recv(caller.socket.number(), bytes, sizeof bytes, 0)) > 0)
      caller.heard.append(bytes, static_cast<std::size_t>(count));
    const bool is_later = errno == EAGAIN || errno == EINTR;
    const std::size_t end = caller.heard.find('\n');
    if (end != std::string::npos && !caller.has_asked) {
      caller.has_asked = true;
      const std::string text = caller.heard.substr(0, end);
      caller.heard.clear();
      const auto json = parse_json(text, "question");
      const bool knows =
          json && json->is_object() && json->contains("word") && (*json)["word"] == word_;
      questions.push_back({id, knows, text});
    }
    const bool has_shut = count == 0 && !caller.has_asked;
    const bool is_gone = has_shut || (count < 0 && !is_later);
    const bool is_bad = caller.heard.size() > kMostQuestion ||
                        (end == std::string::npos && seconds_since(caller.came) > kMostSeconds);
    each = is_gone || is_bad ? callers_.erase(each) : std::next(each);
  }
  return questions;
}

void ControlSocket::answer(int caller, const std::string& text) {
  const auto found = callers_.find(caller);
  if (found == callers_.end()) return;
  const std::string line = text + "\n";
  (void)::send(found->second.socket.number(), line.data(), line.size(), MSG_NOSIGNAL);
  callers_.erase(found);
}

Result<ControlSocketAddress> read_control_socket(const std::string& file) {
  std::ifstream stream(file);
  const std::string text((std::istreambuf_iterator<char>(stream)), {});
  const auto json = text.empty() ? tl::make_unexpected(Error()) : parse_json(text, file);
  const auto is_control_socket = [](const Json& said) {
    return said.is_object() && said.contains("port") && said["port"].is_number_integer() &&
           said.contains("word") && said["word"].is_string();
  };
  if (!json || !is_control_socket(*json))
    return usage_error("run.not-elastic",
                       file + ": not there: no run with --elastic is under way in that directory");
  ControlSocketAddress address;
  address.port = (*json)["port"].get<int>();
  address.word = (*json)["word"].get<std::string>();
  return address;
}

Result<Json> ask_control_socket(const ControlSocketAddress& address, Json question,
                                double seconds) {
  question["word"] = address.word;
  const auto fail = [&](const std::string& why) {
    return runtime_error("run.door",
                         fmt::format("{} port {}: {}", address.host, address.port, why));
  };
  const auto connected = connect_to(address.host, address.port, seconds);
  if (!connected) return fail(connected.error().message);
  const Descriptor& socket = *connected;
  const std::string line = question.dump() + "\n";
  if (::send(socket.number(), line.data(), line.size(), MSG_NOSIGNAL) < 0)
    return fail(std::strerror(errno));
  std::string heard;
  char bytes[4096];
  while (heard.find('\n') == std::string::npos) {
    const ssize_t count = ::recv(socket.number(), bytes, sizeof bytes, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return fail(count == 0 ? "closed without an answer" : "no answer in time");
    heard.append(bytes, static_cast<std::size_t>(count));
  }
  return parse_json(heard.substr(0, heard.find('\n')), "answer");
}

}  // namespace motley::run
