#include "motley/run/torch/exchange/rendezvous.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "motley/base/json.h"
#include "motley/run/hosts/here.h"
#include "motley/run/torch/exchange/failure.h"
#include "motley/run/torch/exchange/served_store.h"
#include "motley/run/torch/exchange/store.h"

namespace motley::run {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

std::chrono::milliseconds milliseconds(Seconds seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds.value * 1000));
}

c10::intrusive_ptr<c10d::Store> make_tcp_store(const RendezvousOptions& options) {
  const RankPlace& place = *options.place;
  c10d::TCPStoreOptions tcp;
  tcp.port = static_cast<std::uint16_t>(place.master_port);
  tcp.isServer = !place.agent_store && options.rank == 0;
  tcp.waitWorkers = false;  // the first agreement finds and names missing ranks
  tcp.timeout = milliseconds(options.timeout);
  return c10::make_intrusive<c10d::TCPStore>(place.master_address, tcp);
}

/// Makes the store of a job without an external launcher.
c10::intrusive_ptr<c10d::Store> make_own_store(const RendezvousOptions& options) {
  if (options.keys) return c10::make_intrusive<ServedStore>(*options.keys);
  return c10::make_intrusive<c10d::FileStore>(options.file, options.size);
}

std::string connection_message(const RendezvousOptions& options, const std::string& cause) {
  const RankPlace& place = *options.place;
  // c10d reports it within a backtrace; a person needs the port and the remedy.
  if (cause.find("EADDRINUSE") != std::string::npos ||
      cause.find("address already in use") != std::string::npos)
    return fmt::format(
        "port {} on {} is in use by another program; set MASTER_PORT to a free port "
        "on all ranks",
        place.master_port, place.master_address);
  return fmt::format(
      "rank {} on {}: no connection to the store at {} port {} ({}): {}; between hosts of a job "
      "any port must be open: a firewall may let ssh through and no other",
      options.rank, own_host_name(), place.master_address, place.master_port, place.source, cause);
}

std::string print_address(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST] = "";
  ::getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

bool is_loopback(const std::string& address) {
  return address.empty() || address.starts_with("127.") || address == "::1";
}

/// Returns the source address of a datagram to the host (none is sent), that is, of its route.
std::string route_source(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return "";
  std::string address;
  for (const addrinfo* each = found; each != nullptr && address.empty(); each = each->ai_next) {
    const int datagram = ::socket(each->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    if (datagram >= 0 && ::connect(datagram, each->ai_addr, each->ai_addrlen) == 0 &&
        ::getsockname(datagram, reinterpret_cast<sockaddr*>(&own), &length) == 0)
      address = print_address(reinterpret_cast<sockaddr*>(&own), length);
    if (datagram >= 0) ::close(datagram);
  }
  ::freeaddrinfo(found);
  return address;
}

/// Returns the host's first non-loopback IPv4 address that is up; of `interface`, if given.
std::string host_address(const std::string& interface) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return "";
  std::string address;
  for (const ifaddrs* each = list; each != nullptr && address.empty(); each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    const bool wanted =
        interface.empty() ? (each->ifa_flags & IFF_UP) != 0 && (each->ifa_flags & IFF_LOOPBACK) == 0
                          : interface == each->ifa_name;
    if (wanted) address = print_address(each->ifa_addr, sizeof(sockaddr_in));
  }
  ::freeifaddrs(list);
  return address;
}

}  // namespace

Rendezvous::Rendezvous(RendezvousOptions options, std::unique_ptr<State> state)
    : options_(std::move(options)), state_(std::move(state)) {}
Rendezvous::~Rendezvous() = default;

Result<std::unique_ptr<Rendezvous>> Rendezvous::open(const RendezvousOptions& options) {
  auto state = std::make_unique<State>();
  try {
    if (options.place) {
      // The agent's store outlives the workers, so the attempt is part of every key.
      state->store = c10::make_intrusive<c10d::PrefixStore>("motley/" + options.place->attempt,
                                                            make_tcp_store(options));
    } else {
      state->store =
          c10::make_intrusive<CancellableStore>(make_own_store(options), state->cancelled);
      state->store->setTimeout(milliseconds(options.timeout));
    }
  } catch (const std::exception& fault) {
    const std::string cause = failure_text(fault);
    return runtime_error("run.rendezvous", options.place
                                               ? connection_message(options, cause)
                                               : fmt::format("{}: {}", options.file, cause));
  }
  return std::unique_ptr<Rendezvous>(new Rendezvous(options, std::move(state)));
}

Result<std::unique_ptr<Rendezvous>> Rendezvous::branch(
    const std::string& name, int rank, int size,
    std::shared_ptr<std::atomic<bool>> cancelled) const {
  const std::scoped_lock lock(state_->moving);
  RendezvousOptions options = options_;
  options.rank = rank;
  options.size = size;
  auto state = std::make_unique<State>();
  if (cancelled) state->cancelled = std::move(cancelled);
  try {
    state->store = c10::make_intrusive<CancellableStore>(
        c10::make_intrusive<c10d::PrefixStore>(name, state_->store->clone()), state->cancelled);
    state->store->setTimeout(milliseconds(options.timeout));
  } catch (const std::exception& fault) {
    return runtime_error("run.rendezvous", fmt::format("{}: {}", name, failure_text(fault)));
  }
  return std::unique_ptr<Rendezvous>(new Rendezvous(std::move(options), std::move(state)));
}

Result<void> Rendezvous::move_keys(const StoreAddress& keys) {
  const std::scoped_lock lock(state_->moving);
  options_.keys = keys;
  try {
    state_->store =
        c10::make_intrusive<CancellableStore>(make_own_store(options_), state_->cancelled);
    state_->store->setTimeout(milliseconds(options_.timeout));
    return {};
  } catch (const std::exception& fault) {
    return runtime_error("run.rendezvous", failure_text(fault));
  }
}

Result<void> Rendezvous::set(const std::string& key, const std::string& value) {
  try {
    state_->store->set(key, value);
    return {};
  } catch (const std::exception& fault) {
    return runtime_error("run.peer-lost", fmt::format("rank {}: the store is gone: {}",
                                                      options_.rank, failure_text(fault)));
  }
}

void Rendezvous::cancel() { *state_->cancelled = true; }

Result<void> Rendezvous::remove(const std::string& key) {
  try {
    state_->store->deleteKey(key);
    return {};
  } catch (const std::exception& fault) {
    return runtime_error("run.peer-lost", fmt::format("rank {}: the store is gone: {}",
                                                      options_.rank, failure_text(fault)));
  }
}

Result<std::string> Rendezvous::get(const std::string& key, Seconds timeout) {
  try {
    state_->store->wait({key}, milliseconds(timeout));
    return state_->store->get_to_str(key);
  } catch (const std::exception& fault) {
    const std::string cause = failure_text(fault);
    const bool late = cause.find("imeout") != std::string::npos;
    return runtime_error(late ? "run.timeout" : "run.peer-lost",
                         late
                             ? fmt::format("rank {}: '{}' did not come within {:g} s",
                                           options_.rank, key, timeout.value)
                             : fmt::format("rank {}: the store is gone: {}", options_.rank, cause));
  }
}

// Only rank 0 reads all values and publishes the result: n ranks read 2n values, not n squared.
Result<void> Rendezvous::meet(const std::string& key, const std::string& value, Seconds timeout) {
  const std::string verdict = key + "/verdict";
  if (options_.rank == 0) {
    const auto met = hear_all(key, value, timeout);
    const std::string text = met ? "" : met.error().code + "\n" + met.error().message;
    MOTLEY_RETURN_IF_ERROR(set(verdict, text));
    return met;
  }
  MOTLEY_RETURN_IF_ERROR(set(fmt::format("{}/{}", key, options_.rank), value));
  // Rank 0 may be late itself, and then wait as long for another rank, which it names.
  const Seconds patience = 2 * timeout;
  const auto text = get(verdict, patience);
  if (!text && text.error().code == "run.timeout")
    return runtime_error("run.timeout", fmt::format("rank {} waited {:g} s for rank 0: {}",
                                                    options_.rank, patience.value, key));
  MOTLEY_RETURN_IF_ERROR(text);
  const std::size_t line = text->find('\n');
  if (line == std::string::npos) return {};
  return runtime_error(text->substr(0, line), text->substr(line + 1));
}

/// Reads in rank order, so that the first missing rank is named.
Result<void> Rendezvous::hear_all(const std::string& key, const std::string& wanted,
                                  Seconds timeout) {
  for (int rank = 1; rank < options_.size; ++rank) {
    const auto found = get(fmt::format("{}/{}", key, rank), timeout);
    if (!found && found.error().code == "run.timeout")
      return runtime_error("run.timeout", fmt::format("rank 0 waited {:g} s for rank {}: {}",
                                                      timeout.value, rank, key));
    MOTLEY_RETURN_IF_ERROR(found);
    if (*found != wanted)
      return runtime_error("run.disagreement", fmt::format("{}: rank {} has {}, rank 0 has {}", key,
                                                           rank, *found, wanted));
  }
  return {};
}

Result<void> Rendezvous::agree(const std::string& key, const std::string& value) {
  return meet(key, value, options_.timeout);
}

// As in meet, only rank 0 reads all values.
Result<std::vector<std::string>> Rendezvous::share(const std::string& key, const std::string& own,
                                                   Seconds timeout) {
  const std::string all = key + "/all";
  std::vector<std::string> said = {own};
  if (options_.rank > 0) {
    MOTLEY_RETURN_IF_ERROR(set(fmt::format("{}/{}", key, options_.rank), own));
    MOTLEY_ASSIGN(const std::string text, get(all, 2 * timeout));
    MOTLEY_ASSIGN(const Json json, parse_json(text, all));
    if (!json.is_array() || json.size() != static_cast<std::size_t>(options_.size))
      return runtime_error("run.rendezvous", fmt::format("{}: rank 0 says '{}'", key, text));
    return json.get<std::vector<std::string>>();
  }
  for (int rank = 1; rank < options_.size; ++rank) {
    MOTLEY_ASSIGN(said.emplace_back(), get(fmt::format("{}/{}", key, rank), timeout));
  }
  MOTLEY_RETURN_IF_ERROR(set(all, Json(said).dump()));
  return said;
}

Result<void> Rendezvous::barrier(const std::string& key, Seconds timeout) {
  return meet(key, "here", timeout);
}

Result<std::string> Rendezvous::own_address() const {
  const std::scoped_lock lock(state_->moving);
  if (!options_.place && !options_.keys) return kLoopback;
  const std::string interface = options_.place ? options_.place->interface : "";
  const std::string& server =
      options_.place ? options_.place->master_address : options_.keys->address;
  const int port = options_.place ? options_.place->master_port : options_.keys->port;
  std::string address = interface.empty() ? route_source(server, port) : host_address(interface);
  const bool one_host = server == "localhost" || is_loopback(server);
  // One host: a firewall may block its other addresses, never this one.
  if (interface.empty() && one_host) return kLoopback;
  // A host's own name often resolves to 127.0.1.1, which is useless to others.
  if (is_loopback(address)) address = host_address(interface);
  if (address.empty())
    return runtime_error(
        "run.address",
        interface.empty()
            ? fmt::format("no network interface leads to {}; set GLOO_SOCKET_IFNAME", server)
            : fmt::format("GLOO_SOCKET_IFNAME: no interface '{}' with an IPv4 address on this host",
                          interface));
  return address;
}

}  // namespace motley::run
