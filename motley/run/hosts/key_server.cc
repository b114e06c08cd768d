#include "motley/run/hosts/key_server.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "motley/base/quiet_thread.h"
#include "motley/base/text.h"

namespace motley::run {
namespace {

constexpr std::size_t kLength = 4;

std::uint32_t read_length(const char* bytes) {
  std::uint32_t length = 0;
  std::memcpy(&length, bytes, kLength);
  return length;
}

void append_field(std::string& text, const std::string& field) {
  const auto length = static_cast<std::uint32_t>(field.size());
  text.append(reinterpret_cast<const char*>(&length), kLength);
  text += field;
}

}  // namespace

std::string pack_fields(const std::vector<std::string>& fields) {
  std::string text;
  for (const std::string& field : fields) append_field(text, field);
  return text;
}

std::vector<std::string> unpack_fields(const std::string& bytes) {
  std::vector<std::string> fields;
  for (std::size_t at = 0; at + kLength <= bytes.size();) {
    const std::size_t length = read_length(bytes.data() + at);
    at += kLength;
    if (length > bytes.size() - at) break;
    fields.push_back(bytes.substr(at, length));
    at += length;
  }
  return fields;
}

Result<std::unique_ptr<KeyServer>> KeyServer::start(Callers callers) {
  constexpr int kMostClients = 1024;  // waiting to be accepted
  auto listening = listen_here(0, kMostClients, callers);
  if (!listening)
    return runtime_error("run.port", "no port for the job's keys: " + listening.error().message);
  MOTLEY_ASSIGN(Pipe wake, make_pipe());
  return std::unique_ptr<KeyServer>(
      new KeyServer(std::move(listening->socket), std::move(wake), listening->port, random_word()));
}

KeyServer::KeyServer(Descriptor socket, Pipe wake, int port, std::string word)
    : socket_(std::move(socket)), wake_(std::move(wake)), port_(port), word_(std::move(word)) {
  thread_ = start_quiet_thread([this] { serve(); });
}

KeyServer::~KeyServer() {
  wake_.write.reset();
  thread_.join();
}

void KeyServer::serve() {
  for (;;) {
    std::vector<pollfd> waits = {{wake_.read.number(), POLLIN, 0}, {socket_.number(), POLLIN, 0}};
    for (const Client& client : clients_)
      waits.push_back({client.socket.number(),
                       static_cast<short>(client.unsaid.empty() ? POLLIN : POLLIN | POLLOUT), 0});
    if (::poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) return;
    if (waits[0].revents != 0) return;
    std::erase_if(clients_, [&, at = std::size_t{2}](Client& client) mutable {
      return waits[at++].revents != 0 && !hear(client);
    });
    if (waits[1].revents == 0) continue;
    Descriptor socket(::accept4(socket_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.is_open()) continue;
    const int yes = 1;
    ::setsockopt(socket.number(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    clients_.push_back({std::move(socket), "", "", false});
  }
}

/// Reads input, answers whole requests and writes what fits. False: the client is gone.
bool KeyServer::hear(Client& client) {
  char bytes[65536];
  ssize_t count = 0;
  while ((count = ::recv(client.socket.number(), bytes, sizeof bytes, 0)) > 0)
    client.heard.append(bytes, static_cast<std::size_t>(count));
  if (count == 0 || (errno != EAGAIN && errno != EINTR)) return false;
  while (client.heard.size() >= kLength) {
    const std::size_t length = read_length(client.heard.data());
    if (!client.is_known && length > word_.size()) return false;
    if (client.heard.size() - kLength < length) break;
    const std::string request = client.heard.substr(kLength, length);
    client.heard.erase(0, kLength + length);
    if (!client.is_known && request != word_) return false;
    append_field(client.unsaid, client.is_known ? answer(request) : "");
    client.is_known = true;
  }
  while (!client.unsaid.empty()) {
    count =
        ::send(client.socket.number(), client.unsaid.data(), client.unsaid.size(), MSG_NOSIGNAL);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    client.unsaid.erase(0, static_cast<std::size_t>(count));
  }
  return true;
}

std::string KeyServer::answer(const std::string& request) {
  const char operation = request.empty() ? '?' : request[0];
  std::vector<std::string> fields = unpack_fields(request.empty() ? "" : request.substr(1));
  fields.resize(std::max<std::size_t>(fields.size(), 3));
  const std::string& key = fields[0];
  const auto found = keys_.find(key);
  switch (operation) {
    case 's':
      keys_[key] = fields[1];
      return "";
    case 'g':
      return found == keys_.end() ? "0" : "1" + found->second;
    case 'a': {
      const std::int64_t before =
          found == keys_.end() ? 0 : find_integer(found->second).value_or(0);
      // Unsigned, because the sum may overflow.
      const std::uint64_t sum = static_cast<std::uint64_t>(before) +
                                static_cast<std::uint64_t>(find_integer(fields[1]).value_or(0));
      return keys_[key] = std::to_string(static_cast<std::int64_t>(sum));
    }
    case 'd':
      return keys_.erase(key) > 0 ? "1" : "0";
    case 'c': {
      for (const std::string& each : unpack_fields(request.substr(1)))
        if (!keys_.contains(each)) return "0";
      return "1";
    }
    case 'x': {
      const bool is_expected =
          found == keys_.end() ? fields[1].empty() : found->second == fields[1];
      if (is_expected) return keys_[key] = fields[2];
      return found == keys_.end() ? fields[1] : found->second;
    }
    default:
      return "";
  }
}

}  // namespace motley::run
