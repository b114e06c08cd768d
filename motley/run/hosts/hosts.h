#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/run/hosts/host_link.h"

namespace motley::run {

/// The agents of a command, kept until it ends and sent regular heartbeats. Either one on each
/// other machine, named as its host and started when needed, or the other ranks of a launcher.
class Hosts {
 public:
  using Command = std::function<std::vector<std::string>(const std::string& host)>;
  /// The versions that an agent's hello must have: Motley's and PyTorch's.
  struct Versions {
    std::string motley, torch;
  };
  Hosts(Command command, Versions versions)
      : command_(std::move(command)), versions_(std::move(versions)) {}
  ~Hosts();
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  void set_patience(double seconds) { patience_ = seconds; }

  /// Uses the other ranks of an external launcher's job as agents, through a relay beside this
  /// process (motley-worker relay). Errors: the store is unreachable; `run.timeout` names the ranks
  /// that did not come within `patience` seconds; `host.version`.
  Result<void> gather(const std::string& worker, int ranks, double patience);
  /// Under a launcher: ends the other ranks with this code.
  void end(int code);

  /// Starts missing agents in parallel. Errors: of HostLink::greet, for the first that fails; stale
  /// error `host.version`: another version; `host.missing`: no launched rank there; of check_names.
  Result<void> reach(const std::set<std::string>& hosts);
  /// Does the same. Returns the hosts that did not answer, with the reason.
  std::map<std::string, Error> reach_some(const std::set<std::string>& hosts);
  struct Reached {
    std::unique_ptr<HostLink> link;
    Json hello;
  };
  /// Starts an agent on a host, from any thread. Errors: as of `reach`.
  Result<Reached> start_agent(const std::string& host) const;
  /// Takes over the agent of a lost coordinator that it outlived (standby.h). Runtime errors:
  /// `run.connect`; `host.led`: its coordinator lives; as of `reach`.
  Result<Reached> take_over(const std::string& host, const std::string& address, int port,
                            const std::string& word) const;
  /// Makes it the host's agent, in place of one that is gone.
  void take_in(const std::string& host, Reached reached);
  /// Checks that hosts differ. Usage error `host.twice`: two reached hosts are one machine.
  Result<void> check_names() const;
  /// Checks the same for a host to be taken in: it is none of the others and not this machine.
  Result<void> check_name(const std::string& host, const Reached& reached) const;
  const Json& hello(const std::string& host) const { return hellos_.at(agents_on(host).front()); }
  /// Returns the host's calendar time minus this machine's, accurate to half a round trip.
  Result<Seconds> clock_ahead(const std::string& host);
  /// The coordinator's address as seen from the host, and the host's as seen from the coordinator.
  struct Way {
    std::string coordinator, host;
  };
  Way way_to(const std::string& host) const;
  Way way_to(const std::string& host, const Json& hello) const;
  HostLink& at(const std::string& agent) { return *links_.at(agent); }
  /// Returns the agent that has the files of a reached host.
  HostLink& on(const std::string& host) { return *links_.at(agents_on(host).front()); }
  /// Returns all agents on a reached host; "": those beside this process.
  const std::vector<std::string>& agents_on(const std::string& host) const;
  /// Returns the machines of a launcher's other ranks, by their own names.
  std::vector<std::string> launched_hosts() const;

 private:
  static constexpr double kGreeting = 30;  // seconds; a login may query slow services
  Result<Json> greet(HostLink& link, double patience) const;
  Result<std::set<int>> accept(int listener, int ranks, double patience);
  std::map<std::string, Error> find_launched(const std::vector<std::string>& hosts);
  void add(std::map<std::string, std::unique_ptr<HostLink>> fresh);
  void drop(const std::string& agent);
  void beat();

  Command command_;
  Versions versions_;
  double patience_ = kGreeting;
  bool is_launched_ = false;
  std::string coordinator_address_;  ///< as seen by a launcher's ranks
  std::optional<Child> relay_;
  std::vector<std::string> launched_;  ///< agents, by rank
  std::map<std::string, std::unique_ptr<HostLink>> links_;
  std::map<std::string, Json> hellos_;
  std::map<std::string, std::vector<std::string>> agents_;  ///< by host
  std::mutex mutex_;                                        // guards links_ and is_over_
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread beating_;
};

}  // namespace motley::run
