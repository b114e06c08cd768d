#include "motley/run/hosts/hosts.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "motley/run/hosts/agent.h"

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

Result<void> Hosts::check_versions(const std::string& host, const Json& hello) const {
  const std::string motley = hello.value("motley", ""), torch = hello.value("torch", "");
  const auto differs = [&](const char* what, const std::string& there, const std::string& here) {
    return stale_error(
        "host.version",
        fmt::format("host {}: found {} {}, here is {}; install the same on all hosts{}", host, what,
                    there.empty() ? "(none)" : there, here,
                    hello.value("fault", "").empty()
                        ? ""
                        : " (it says: " + hello.value("fault", "") + ")"));
  };
  if (motley != versions_.motley) return differs("Motley", motley, versions_.motley);
  if (torch != versions_.torch) return differs("PyTorch", torch, versions_.torch);
  return {};
}

Result<void> Hosts::reach(const std::set<std::string>& hosts) {
  std::map<std::string, std::unique_ptr<HostLink>> fresh;
  for (const std::string& host : hosts) {
    if (links_.contains(host)) continue;
    MOTLEY_ASSIGN(fresh[host], HostLink::start(host, command_(host)));
  }
  for (auto& [host, link] : fresh) {
    MOTLEY_ASSIGN(Json hello, link->greet(kGreeting));
    MOTLEY_RETURN_IF_ERROR(check_versions(host, hello));
    hellos_[host] = std::move(hello);
  }
  if (fresh.empty()) return {};
  const std::scoped_lock lock(mutex_);
  links_.merge(fresh);
  if (!beating_.joinable()) beating_ = std::thread([this] { beat(); });
  return {};
}

}  // namespace motley::run
