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

/// The agents that a command works with, kept until it ends and told regularly that it lives,
/// whatever its owner does. Either one on each other machine, named as its host and started when it
/// is first wanted; or, under an external launcher, its other ranks.
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

  /// How long agents may take to say hello; for tests, else half a minute.
  void set_patience(double seconds) { patience_ = seconds; }

  /// Takes the other ranks of an external launcher's job as agents, by a relay beside this process
  /// (motley-worker relay). Errors: the store cannot be reached; `run.timeout` names the ranks that
  /// did not come within `patience` seconds; `host.version`.
  Result<void> gather(const std::string& worker, int ranks, double patience);
  /// Under a launcher: the other ranks end with this code.
  void end(int code);

  /// Starts the agents of those that have none yet, side by side. Errors: of HostLink::greet for
  /// the first that does not answer; stale error `host.version`: another version there, or
  /// `host.missing`: under a launcher, none of its ranks is there; of check_names.
  Result<void> reach(const std::set<std::string>& hosts);
  /// The same; those that did not answer, with why.
  std::map<std::string, Error> reach_some(const std::set<std::string>& hosts);
  /// An agent that was started, and what it said of its host at first.
  struct Reached {
    std::unique_ptr<HostLink> link;
    Json hello;
  };
  /// Starts an agent on a host, beside whatever else goes on: any thread. Errors as of `reach`.
  Result<Reached> start_agent(const std::string& host) const;
  /// Takes the agent of a coordinator that is gone, which outlived it (standby.h). Errors: runtime
  /// error `run.connect`, `host.led` where its coordinator lives; as of `reach`.
  Result<Reached> take_over(const std::string& host, const std::string& address, int port,
                            const std::string& word) const;
  /// It is the host's from now on, in place of one that is gone.
  void take_in(const std::string& host, Reached reached);
  /// Usage error `host.twice`: two of the hosts that were reached are one machine.
  Result<void> check_names() const;
  /// The same of a host that is to be taken in: it is none of the others, and not this machine by
  /// another name.
  Result<void> check_name(const std::string& host, const Reached& reached) const;
  /// What an agent on the host said of it at first.
  const Json& hello(const std::string& host) const { return hellos_.at(agents_on(host).front()); }
  /// Its calendar's time minus that of this machine, to half of a round trip.
  Result<Seconds> clock_ahead(const std::string& host);
  /// Addresses by which the coordinator is seen from the host, and the host from the coordinator.
  struct Way {
    std::string coordinator, host;
  };
  Way way_to(const std::string& host) const;
  Way way_to(const std::string& host, const Json& hello) const;
  /// By its name.
  HostLink& at(const std::string& agent) { return *links_.at(agent); }
  /// Of a host that was reached: the agent that has its files.
  HostLink& on(const std::string& host) { return *links_.at(agents_on(host).front()); }
  /// All on a host that was reached; "": beside this process.
  const std::vector<std::string>& agents_on(const std::string& host) const;
  /// Machines of a launcher's other ranks, by the names that they give themselves.
  std::vector<std::string> launched_hosts() const;

 private:
  static constexpr double kGreeting = 30;  // seconds; a login may ask slow services
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
  std::string coordinator_address_;  ///< that a launcher's ranks see
  std::optional<Child> relay_;
  std::vector<std::string> launched_;  ///< agents, by rank
  std::map<std::string, std::unique_ptr<HostLink>> links_;
  std::map<std::string, Json> hellos_;
  std::map<std::string, std::vector<std::string>> agents_;  ///< by host
  std::mutex mutex_;                                        // of links_, and is_over_
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread beating_;
};

}  // namespace motley::run
