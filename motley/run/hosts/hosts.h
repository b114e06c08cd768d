#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "motley/base/result.h"
#include "motley/run/hosts/host_link.h"

namespace motley::run {

/// The agents of other machines that a command works with, started when they are first wanted and
/// kept until it ends. Tells them regularly that it lives, whatever its owner does.
class Hosts {
 public:
  /// The command that runs the agent of a host.
  using Command = std::function<std::vector<std::string>(const std::string& host)>;
  /// What an agent's hello must say: Motley's version and PyTorch's.
  struct Versions {
    std::string motley, torch;
  };
  Hosts(Command command, Versions versions)
      : command_(std::move(command)), versions_(std::move(versions)) {}
  ~Hosts();
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  /// Starts the agents of those that have none yet, side by side. Errors: of HostLink::greet for
  /// the first that does not answer; stale error `host.version`: another version there.
  Result<void> reach(const std::set<std::string>& hosts);
  /// The same; those that did not answer, with why.
  std::map<std::string, Error> reach_some(const std::set<std::string>& hosts);
  /// Addresses by which the lead is seen from the host, and the host from the lead.
  struct Way {
    std::string lead, host;
  };
  Way way_to(const std::string& host) const;
  /// Of a host that was reached.
  HostLink& at(const std::string& host) { return *links_.at(host); }
  const Json& hello(const std::string& host) const { return hellos_.at(host); }

 private:
  Result<Json> greet(HostLink& link) const;
  void beat();

  Command command_;
  Versions versions_;
  std::map<std::string, std::unique_ptr<HostLink>> links_;
  std::map<std::string, Json> hellos_;
  std::mutex mutex_;  // of links_, and is_over_
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread beating_;
};

}  // namespace motley::run
