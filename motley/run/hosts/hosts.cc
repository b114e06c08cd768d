#include "motley/run/hosts/hosts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <utility>

#include "motley/base/quiet_thread.h"
#include "motley/base/text.h"
#include "motley/run/hosts/agent.h"
#include "motley/run/hosts/elapsed.h"
#include "motley/run/hosts/here.h"
#include "motley/run/hosts/relay_process.h"

namespace motley::run {
namespace {

namespace fs = std::filesystem;
constexpr double kLeastPatience = 1;  // seconds; data that arrived meanwhile is still to be read

}  // namespace

Hosts::~Hosts() {
  {
    const std::scoped_lock lock(mutex_);
    is_over_ = true;
  }
  over_.notify_all();
  if (beating_.joinable()) beating_.join();
  links_.clear();
  if (!relay_) return;
  relay_->input.reset();  // it ends after what it still carries
  wait_for_exit(relay_->pid);
}

void Hosts::beat() {
  std::unique_lock lock(mutex_);
  while (!over_.wait_for(lock, std::chrono::duration<double>(kBeatEvery), [&] { return is_over_; }))
    for (const auto& [host, link] : links_) link->beat();
}

Result<Json> Hosts::greet(HostLink& link, double patience) const {
  MOTLEY_ASSIGN(Json hello, link.greet(patience));
  const auto differs = [&](const char* what, const std::string& there, const std::string& here) {
    const std::string fault = hello.value("fault", "");
    return stale_error(
        "host.version",
        fmt::format("host {}: found {} {}, here is {}; install the same on all hosts{}",
                    link.host(), what, there.empty() ? "(none)" : there, here,
                    fault.empty() ? "" : " (it says: " + fault + ")"));
  };
  const std::string motley = hello.value("motley", ""), torch = hello.value("torch", "");
  if (motley != versions_.motley) return differs("Motley", motley, versions_.motley);
  if (torch != versions_.torch) return differs("PyTorch", torch, versions_.torch);
  return hello;
}

void Hosts::add(std::map<std::string, std::unique_ptr<HostLink>> fresh) {
  const std::scoped_lock lock(mutex_);
  links_.merge(fresh);
  if (beating_.joinable() || links_.empty()) return;
  beating_ = start_quiet_thread([this] { beat(); });
}

std::map<std::string, Error> Hosts::reach_some(const std::set<std::string>& hosts) {
  std::map<std::string, std::unique_ptr<HostLink>> fresh;
  std::map<std::string, Error> missing;
  std::vector<std::string> started, launched;
  for (const std::string& host : hosts) {
    if (agents_.contains(host)) continue;
    if (is_launched_ && !is_this_machine(host)) {
      launched.push_back(host);
      continue;
    }
    auto link = HostLink::start(host, command_(host));
    if (!link) {
      missing[host] = link.error();
      continue;
    }
    fresh[host] = std::move(*link);
    started.push_back(host);
  }
  if (!launched.empty()) missing.merge(find_launched(launched));
  // From now on they get heartbeats: a slow host must not cost the others their agents.
  add(std::move(fresh));
  const auto begin = Clock::now();
  for (const std::string& host : started) {
    auto hello =
        greet(*links_.at(host), std::max(kLeastPatience, patience_ - seconds_since(begin)));
    if (hello) {
      hellos_[host] = std::move(*hello);
      agents_[host] = {host};
      continue;
    }
    missing[host] = hello.error();
    drop(host);
  }
  return missing;
}

Result<Hosts::Reached> Hosts::start_agent(const std::string& host) const {
  Reached reached;
  MOTLEY_ASSIGN(reached.link, HostLink::start(host, command_(host)));
  MOTLEY_ASSIGN(reached.hello, greet(*reached.link, patience_));
  return reached;
}

namespace {

/// Returns this machine's address as seen from the other end of a connection.
std::string own_address(int socket) {
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  auto* any = reinterpret_cast<sockaddr*>(&own);
  char text[NI_MAXHOST] = "";
  if (::getsockname(socket, any, &length) == 0)
    ::getnameinfo(any, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  const std::string address = text;
  constexpr std::string_view kMapped = "::ffff:";  // an IPv4 address in IPv6 form
  return address.starts_with(kMapped) ? address.substr(kMapped.size()) : address;
}

}  // namespace

Result<Hosts::Reached> Hosts::take_over(const std::string& host, const std::string& address,
                                        int port, const std::string& word) const {
  constexpr double kPatience = 2;  // seconds; it listens, or is gone
  MOTLEY_ASSIGN(Descriptor socket, connect_to(address, port, kPatience));
  const std::string coordinator = own_address(socket.number());
  Reached reached;
  reached.link = HostLink::over(host, std::move(socket));
  MOTLEY_RETURN_IF_ERROR(reached.link->send({{"do", "lead"}, {"word", word}}));
  MOTLEY_ASSIGN(reached.hello, greet(*reached.link, kPatience));
  reached.hello["ssh_connection"] = fmt::format("{} 0 {} 0", coordinator, address);
  return reached;
}

void Hosts::take_in(const std::string& host, Reached reached) {
  if (links_.contains(host)) drop(host);
  std::map<std::string, std::unique_ptr<HostLink>> fresh;
  fresh[host] = std::move(reached.link);
  add(std::move(fresh));
  hellos_[host] = std::move(reached.hello);
  agents_[host] = {host};
}

void Hosts::drop(const std::string& agent) {
  std::unique_ptr<HostLink> link;
  const std::scoped_lock lock(mutex_);
  link = std::move(links_.at(agent));
  links_.erase(agent);
}

Result<void> Hosts::reach(const std::set<std::string>& hosts) {
  const std::map<std::string, Error> missing = reach_some(hosts);
  if (missing.empty()) return check_names();
  Error error = missing.begin()->second;
  if (missing.size() > 1) error.message += fmt::format("; and {} more hosts", missing.size() - 1);
  return tl::make_unexpected(std::move(error));
}

Result<void> Hosts::check_names() const {
  std::map<std::string, std::string> names;  // by machine
  for (const auto& [host, agents] : agents_) {
    if (host.empty() || agents.empty()) continue;
    const auto [known, is_new] = names.emplace(hello(host).value("machine", host), host);
    if (!is_new)
      return usage_error("host.twice", fmt::format("{} and {} are one machine: name it once",
                                                   known->second, host));
  }
  return {};
}

Result<void> Hosts::check_name(const std::string& host, const Reached& reached) const {
  const std::string machine = reached.hello.value("machine", host);
  const auto twice = [&](const std::string& other) {
    return usage_error("host.twice", fmt::format("{} is {}: name it so, once", host, other));
  };
  if (machine == machine_identity() && !is_this_machine(host)) return twice(own_host_name());
  for (const auto& [other, agents] : agents_)
    if (other != host && !other.empty() && !agents.empty() &&
        hello(other).value("machine", other) == machine)
      return twice(other);
  return {};
}

Result<Seconds> Hosts::clock_ahead(const std::string& host) {
  constexpr int kTimes = 5;
  constexpr double kPatience = 15;  // seconds
  const auto calendar = [] {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch());
  };
  double least = kPatience;
  Seconds ahead;
  for (int i = 0; i < kTimes; ++i) {
    const auto begin = Clock::now();
    const double before = calendar().count();
    MOTLEY_ASSIGN(const Frame answer, on(host).ask({{"do", "clock"}}, "clock", kPatience));
    const double round_trip = seconds_since(begin);
    if (round_trip >= least) continue;
    least = round_trip;
    ahead = Seconds(answer.head.value("time", 0.0) - before - round_trip / 2);
  }
  return ahead;
}

namespace {

std::string rank_agent(int rank) { return fmt::format("rank {}", rank); }

/// A folder that only this user may enter, with a listening socket.
struct Listener {
  std::string folder;
  Descriptor socket;

  static Result<Listener> open() {
    Listener made;
    std::string name = (fs::temp_directory_path() / "motley-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      return runtime_error("run.relay", name + ": " + std::strerror(errno));
    made.folder = name;
    made.socket = Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    made.path().copy(address.sun_path, sizeof address.sun_path - 1);
    if (::bind(made.socket.number(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(made.socket.number(), SOMAXCONN) != 0)
      return runtime_error("run.relay", made.path() + ": " + std::strerror(errno));
    return made;
  }
  std::string path() const { return folder + "/relay"; }
  ~Listener() {
    std::error_code code;
    if (socket.is_open()) fs::remove_all(folder, code);
  }
  Listener() = default;
  Listener(Listener&&) = default;
};

std::string missing_ranks(int ranks, const std::set<int>& there) {
  constexpr std::size_t kMostNamed = 8;
  std::vector<std::string> missing;
  for (int rank = 1; rank < ranks; ++rank)
    if (!there.contains(rank)) missing.push_back(std::to_string(rank));
  const std::size_t others = missing.size() - std::min(missing.size(), kMostNamed);
  missing.resize(missing.size() - others);
  return fmt::format("{}{}", fmt::join(missing, ", "),
                     others == 0 ? "" : fmt::format(" and {} more", others));
}

}  // namespace

/// Each gets heartbeats as soon as it is there: a launcher may take long for the others.
Result<std::set<int>> Hosts::accept(int listener, int ranks, double patience) {
  constexpr double kWord = 10;  // seconds for a rank's first message
  const auto begin = Clock::now();
  std::set<int> there;
  while (static_cast<int>(there.size()) < ranks - 1) {
    const double left = patience - seconds_since(begin);
    pollfd waits[2] = {{listener, POLLIN, 0}, {relay_->output.number(), POLLIN, 0}};
    const int count = left <= 0 ? 0 : ::poll(waits, 2, static_cast<int>(1000 * left) + 1);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0)
      return runtime_error("run.timeout", fmt::format("rank 0 waited {:g} s for rank {}", patience,
                                                      missing_ranks(ranks, there)));
    if (waits[1].revents != 0)
      return runtime_error("run.peer-lost", "the connection to the launcher's store has ended");
    Descriptor socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket.is_open()) continue;
    MOTLEY_ASSIGN(const std::string word, read_one_line(socket.number(), kWord));
    const auto blank = std::find(word.begin(), word.end(), ' ');
    const auto rank = find_integer(blank == word.end() ? word : std::string(blank + 1, word.end()));
    if (!rank) return runtime_error("run.relay", "found '" + word + "', wanted a rank");
    there.insert(static_cast<int>(*rank));
    const std::string agent = rank_agent(static_cast<int>(*rank));
    std::map<std::string, std::unique_ptr<HostLink>> fresh;
    fresh[agent] = HostLink::over(agent, std::move(socket));
    add(std::move(fresh));
  }
  return there;
}

Result<void> Hosts::gather(const std::string& worker, int ranks, double patience) {
  is_launched_ = true;
  if (ranks < 2) return {};
  MOTLEY_ASSIGN(const Listener listener, Listener::open());
  MOTLEY_ASSIGN(RelayProcess relay, start_relay(worker, listener.path()));
  coordinator_address_ = relay.address;
  relay_ = std::move(relay.child);
  MOTLEY_ASSIGN(const std::set<int> there, accept(listener.socket.number(), ranks, patience));
  for (const int rank : there) {
    launched_.push_back(rank_agent(rank));
    HostLink& link = at(launched_.back());
    MOTLEY_ASSIGN(Json hello, greet(link, patience_));
    link.rename(fmt::format("{} ({})", hello.value("host", ""), link.host()));
    hellos_[launched_.back()] = std::move(hello);
  }
  for (const std::string& agent : launched_)
    if (hellos_.at(agent).value("machine", "") == machine_identity()) agents_[""].push_back(agent);
  return {};
}

void Hosts::end(int code) {
  for (const std::string& agent : launched_)
    (void)links_.at(agent)->send({{"do", "end"}, {"code", code}});
}

/// Asks a rank of each other machine, all at once, which of the hosts it is.
std::map<std::string, Error> Hosts::find_launched(const std::vector<std::string>& hosts) {
  constexpr double kPatience = 30;  // seconds; slow services resolve names
  std::map<std::string, std::vector<std::string>> others;
  for (const std::string& agent : launched_)
    if (const std::string its = hellos_.at(agent).value("machine", ""); its != machine_identity())
      others[its].push_back(agent);
  std::map<std::string, Error> missing;
  const auto fail = [&](const Error& error) {
    for (const std::string& host : hosts) missing.emplace(host, error);
    return missing;
  };
  for (const auto& [machine, agents] : others)
    if (const auto sent = links_.at(agents.front())->send({{"do", "names"}, {"hosts", hosts}});
        !sent)
      return fail(sent.error());
  for (const auto& [machine, agents] : others) {
    const auto answer = links_.at(agents.front())->wait_for("names", kPatience);
    if (!answer) return fail(answer.error());
    for (std::size_t i = 0; i < hosts.size(); ++i)
      if (answer->head.at("here").at(i).get<bool>()) agents_[hosts[i]] = agents;
  }
  std::vector<std::string> found = launched_hosts();
  found.insert(found.begin(), own_host_name());
  for (const std::string& host : hosts)
    if (!agents_.contains(host))
      missing[host] = Error{ErrorKind::kStale, "host.missing",
                            fmt::format("host {}: none of the launcher's ranks is there (they are "
                                        "on {})",
                                        host, fmt::join(found, ", "))};
  return missing;
}

const std::vector<std::string>& Hosts::agents_on(const std::string& host) const {
  static const std::vector<std::string> kNone;
  const auto found = agents_.find(host);
  return found == agents_.end() ? kNone : found->second;
}

std::vector<std::string> Hosts::launched_hosts() const {
  std::vector<std::string> hosts;
  std::set<std::string> machines = {machine_identity()};
  for (const std::string& agent : launched_) {
    const Json& hello = hellos_.at(agent);
    if (machines.insert(hello.value("machine", "")).second)
      hosts.push_back(hello.value("host", ""));
  }
  return hosts;
}

Hosts::Way Hosts::way_to(const std::string& host) const { return way_to(host, hello(host)); }

Hosts::Way Hosts::way_to(const std::string& host, const Json& hello) const {
  if (is_launched_) return {coordinator_address_, hello.value("address", coordinator_address_)};
  // sshd sets this for its sessions: "client port server port".
  std::istringstream words(hello.value("ssh_connection", ""));
  Way way;
  std::string port;
  words >> way.coordinator >> port >> way.host;
  if (way.coordinator.empty()) way.coordinator = own_host_name();
  if (way.host.empty()) way.host = host;
  return way;
}

}  // namespace motley::run
