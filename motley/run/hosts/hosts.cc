#include "motley/run/hosts/hosts.h"

#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <sstream>
#include <utility>

#include "motley/run/hosts/agent.h"
#include "motley/run/hosts/here.h"

namespace motley::run {
namespace {

constexpr double kGreeting = 30;  // seconds; a login may ask slow services

}  // namespace

Hosts::~Hosts() {
  {
    const std::scoped_lock lock(mutex_);
    is_over_ = true;
  }
  over_.notify_all();
  if (beating_.joinable()) beating_.join();
}

void Hosts::beat() {
  std::unique_lock lock(mutex_);
  while (!over_.wait_for(lock, std::chrono::duration<double>(kBeatEvery), [&] { return is_over_; }))
    for (const auto& [host, link] : links_) link->beat();
}

Result<Json> Hosts::greet(HostLink& link) const {
  MOTLEY_ASSIGN(Json hello, link.greet(kGreeting));
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

std::map<std::string, Error> Hosts::reach_some(const std::set<std::string>& hosts) {
  std::map<std::string, std::unique_ptr<HostLink>> fresh;
  std::map<std::string, Error> missing;
  for (const std::string& host : hosts) {
    if (links_.contains(host)) continue;
    auto link = HostLink::start(host, command_(host));
    if (link)
      fresh[host] = std::move(*link);
    else
      missing[host] = link.error();
  }
  for (auto& [host, link] : fresh) {
    auto hello = greet(*link);
    if (hello)
      hellos_[host] = std::move(*hello);
    else
      missing[host] = hello.error();
  }
  for (const auto& [host, error] : missing) fresh.erase(host);
  if (fresh.empty()) return missing;
  const std::scoped_lock lock(mutex_);
  links_.merge(fresh);
  if (beating_.joinable()) return missing;
  // Signals are for the thread that waits for them: it inherits what is blocked now.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  beating_ = std::thread([this] { beat(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return missing;
}

Result<void> Hosts::reach(const std::set<std::string>& hosts) {
  const std::map<std::string, Error> missing = reach_some(hosts);
  if (missing.empty()) return {};
  Error error = missing.begin()->second;
  if (missing.size() > 1) error.message += fmt::format("; and {} more hosts", missing.size() - 1);
  return tl::make_unexpected(std::move(error));
}

Hosts::Way Hosts::way_to(const std::string& host) const {
  // What sshd tells its sessions: "client port server port".
  std::istringstream words(hellos_.at(host).value("ssh_connection", ""));
  Way way;
  std::string port;
  words >> way.lead >> port >> way.host;
  if (way.lead.empty()) way.lead = own_host_name();
  if (way.host.empty()) way.host = host;
  return way;
}

}  // namespace motley::run
