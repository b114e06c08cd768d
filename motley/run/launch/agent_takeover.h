#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "motley/base/json.h"
#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/run/hosts/elapsed.h"
#include "motley/run/hosts/hosts.h"
#include "motley/run/hosts/left_files.h"
#include "motley/run/job.h"
#include "motley/run/launch/views.h"

namespace motley::run {

/// What agents have of a coordinator that is gone (hosts/standby.h), for the one that goes on with
/// it.
struct TakeoverState {
  Json memory;                     ///< the newest that one of them has, as Succession wrote it
  std::string host;                ///< of this process, as the job calls it
  Seconds alone;                   ///< since when nobody leads
  std::set<std::string> hosts;     ///< whose agents are this coordinator's now
  std::string scratch;             ///< folder of the agent here
  std::vector<WorkerEvent> steps;  ///< the last that its processes spoke of, some more than once
  std::map<std::string, std::vector<std::string>> checkpoints;  ///< by host: SCRATCH/path there
  std::map<int, int> processes;  ///< that run: ranks, and numbers by which their agents know them
};

/// What a coordinator leaves with the agents of an elastic job on several hosts, so that another
/// can lead on when it is lost; and whether it may lead itself (views.h).
class AgentTakeover {
 public:
  /// `host`: what the job calls the coordinator's. All outlive it. `inherited`: from another
  /// coordinator; null: this is the first.
  AgentTakeover(Hosts& hosts, const Job& job, std::string host, const TakeoverState* inherited);
  /// Agents end with this coordinator from now on.
  ~AgentTakeover();
  AgentTakeover(const AgentTakeover&) = delete;
  AgentTakeover& operator=(const AgentTakeover&) = delete;

  /// A checkpoint of this machine is whole, which a process of that host has written: the first of
  /// the other hosts is to have it.
  void leave_checkpoint(const std::string& path, const std::string& writer);
  /// Leaves this with all agents that are there, in place of what they had: an object, to which
  /// `view`, `coordinator`, `ways`, `word`, `epoch` and `version` are added; a folder of this
  /// machine that it names as `profiles` goes with it. Does not wait.
  void leave(Json what);
  /// The job's files that grow are brought to them, and what they know is looked at.
  void look();
  /// Goes on with files on their way, without waiting.
  void send_files();
  /// Have enough of them said, since the last `leave`, that this one leads them?
  bool may_coordinate();

  /// Takes all agents of the memory that another coordinator left, whom nobody leads: until there
  /// are enough to lead by themselves, or no more come. Runtime error `takeover.none`: not even the
  /// one of this host.
  static Result<TakeoverState> take_over(Hosts& hosts, const std::string& memory_file);

 private:
  static Result<TakeoverState> take_all(Hosts& hosts, const std::string& memory_file);
  std::set<std::string> reached() const;
  std::int64_t remembered(const std::string& host) const;
  std::set<std::string> answering() const;
  void send(std::set<std::string> view);
  void send_log();
  std::string first_standby() const;
  void share_files();
  std::string log_path() const;

  Hosts& hosts_;
  const Job& job_;
  std::string host_, word_;
  Views views_;
  double patience_;  // seconds of silence after which the coordinator is gone
  int epoch_ = 0;
  std::int64_t version_ = 0;
  Json what_;
  Clock::time_point sent_at_;
  std::size_t known_ports_ = 0;
  std::int64_t log_sent_ = 0;  // bytes of the log
  struct Left {
    std::string scratch;  // of the agent that has it: another one has nothing
    LeftFiles files;
  };
  std::map<std::string, Left> left_;                // by host
  std::string profiles_, checkpoint_, written_by_;  // folders here; the scratch of who wrote it
};

}  // namespace motley::run
