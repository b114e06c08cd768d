#include "motley/run/hosts/here.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <vector>

#include "motley/run/hosts/child_process.h"

namespace motley::run {
namespace {

std::string address_text(const sockaddr* address) {
  const bool is_4 = address->sa_family == AF_INET, is_6 = address->sa_family == AF_INET6;
  if (!is_4 && !is_6) return "";
  std::array<char, NI_MAXHOST> text{};
  const auto length = static_cast<socklen_t>(is_4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
  ::getnameinfo(address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return text.data();
}

std::set<std::string> own_addresses() {
  std::set<std::string> addresses;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return addresses;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next)
    if (each->ifa_addr != nullptr) addresses.insert(address_text(each->ifa_addr));
  ::freeifaddrs(list);
  return addresses;
}

std::vector<std::string> addresses_of(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  std::vector<std::string> addresses;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return addresses;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next)
    addresses.push_back(address_text(each->ai_addr));
  ::freeaddrinfo(found);
  return addresses;
}

}  // namespace

std::string own_host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::string machine_identity() {
  std::ifstream stream("/proc/sys/kernel/random/boot_id");
  std::string boot;
  stream >> boot;
  std::string identity = own_host_name() + " " + boot;
  for (const char* space : {"mnt", "pid", "net"}) {
    std::error_code code;
    identity +=
        " " + std::filesystem::read_symlink(fmt::format("/proc/self/ns/{}", space), code).string();
  }
  return identity;
}

bool is_this_machine(const std::string& host) {
  if (host.empty() || host == "localhost" || host == own_host_name()) return true;
  const std::string name = host.substr(host.rfind('@') + 1);  // without a user
  const std::set<std::string> own = own_addresses();
  for (const std::string& address : addresses_of(name))
    if (address.starts_with("127.") || own.contains(address)) return true;
  return false;
}

std::string random_word() {
  std::random_device source;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", source(), source(), source(), source());
}

namespace {

Result<Listening> listen_at(const sockaddr* address, socklen_t length, int backlog) {
  Listening made;
  made.socket =
      Descriptor(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int yes = 1, no = 0;
  ::setsockopt(made.socket.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (address->sa_family == AF_INET6)  // accepts IPv4 too
    ::setsockopt(made.socket.number(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  if (!made.socket.is_open() || ::bind(made.socket.number(), address, length) != 0 ||
      ::listen(made.socket.number(), backlog) != 0 ||
      ::getsockname(made.socket.number(), reinterpret_cast<sockaddr*>(&own), &size) != 0)
    return runtime_error("run.port", std::strerror(errno));
  made.port = ntohs(own.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(own).sin6_port
                                              : reinterpret_cast<sockaddr_in&>(own).sin_port);
  return made;
}

}  // namespace

Result<Listening> listen_here(int port, int backlog, Callers callers) {
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(static_cast<std::uint16_t>(port));
  six.sin6_addr = in6addr_any;
  if (callers == Callers::kAll)
    if (auto made = listen_at(reinterpret_cast<sockaddr*>(&six), sizeof six, backlog)) return made;
  sockaddr_in four{};  // for machines without IPv6 too
  four.sin_family = AF_INET;
  four.sin_port = htons(static_cast<std::uint16_t>(port));
  four.sin_addr.s_addr = htonl(callers == Callers::kAll ? INADDR_ANY : INADDR_LOOPBACK);
  return listen_at(reinterpret_cast<sockaddr*>(&four), sizeof four, backlog);
}

Result<Descriptor> connect_to(const std::string& host, int port, double seconds) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int fault = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  std::string why = fault == 0 ? "" : ::gai_strerror(fault);
  const double whole = std::floor(seconds);
  const timeval limit{static_cast<time_t>(whole),
                      static_cast<suseconds_t>((seconds - whole) * 1e6)};
  const int yes = 1;
  Descriptor socket;
  for (const addrinfo* each = found; each != nullptr && !socket.is_open(); each = each->ai_next) {
    Descriptor made(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ::setsockopt(made.number(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    // The send limit applies to connecting too.
    ::setsockopt(made.number(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(made.number(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (::connect(made.number(), each->ai_addr, each->ai_addrlen) == 0)
      socket = std::move(made);
    else
      why = errno == EINPROGRESS ? "no answer in time" : std::strerror(errno);
  }
  if (found != nullptr) ::freeaddrinfo(found);
  if (!socket.is_open()) return runtime_error("run.connect", std::move(why));
  return socket;
}

Result<int> find_free_port() {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t length = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (!socket.is_open() || ::bind(socket.number(), any, length) != 0 ||
      ::getsockname(socket.number(), any, &length) != 0)
    return runtime_error("run.port", fmt::format("no free port: {}", std::strerror(errno)));
  return static_cast<int>(ntohs(address.sin_port));
}

}  // namespace motley::run
