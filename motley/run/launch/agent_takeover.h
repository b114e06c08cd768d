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

/// What agents know of a lost coordinator's job (hosts/standby.h), for its successor.
struct TakeoverState {
  Json memory;                     ///< newest memory of any agent, as AgentTakeover wrote it
  std::string host;                ///< name of this process's host in the job
  Seconds alone;                   ///< time without a coordinator
  std::set<std::string> hosts;     ///< hosts whose agents this coordinator has taken over
  std::string scratch;             ///< folder of the local agent
  std::vector<WorkerEvent> steps;  ///< last step events of its processes; may repeat
  std::map<std::string, std::vector<std::string>> checkpoints;  ///< by host: SCRATCH/path there
  std::map<int, int> processes;  ///< running ranks, and their numbers at their agents
};

/// Prepares an elastic job's agents for failover, and decides whether this one may lead (views.h).
class AgentTakeover {
 public:
  /// `host`: the coordinator's name in the job. `inherited`: from a lost coordinator; null: this is
  /// the first. All arguments outlive the object.
  AgentTakeover(Hosts& hosts, const Job& job, std::string host, const TakeoverState* inherited);
  /// Makes the agents end with this coordinator again.
  ~AgentTakeover();
  AgentTakeover(const AgentTakeover&) = delete;
  AgentTakeover& operator=(const AgentTakeover&) = delete;

  /// Records a whole local checkpoint, written on host `writer`, to copy to the first other host.
  void leave_checkpoint(const std::string& path, const std::string& writer);
  /// Sends this memory to all reached agents in place of the previous one: an object, to which
  /// `view`, `lead`, `ways`, `word`, `epoch`, `version` and `patience` are added. A local folder
  /// that it names as `profiles` is sent too. Does not wait.
  void leave(Json what);
  /// Sends what the log has gained and takes the agents' confirmations into account.
  void look();
  /// Continues file transfers without waiting.
  void send_files();
  /// Tells whether a quorum has confirmed this coordinator since the last `leave`.
  bool may_coordinate();

  /// Takes over all agents in the memory of a lost coordinator that nobody leads, until they are
  /// enough to lead or no more come. Runtime error `succession.none`: the agent of this host
  /// refuses, or no process of the job runs any more.
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
    std::string scratch;  // of the agent that has it; a new agent has nothing
    LeftFiles files;
  };
  std::map<std::string, Left> left_;                // by host
  std::string profiles_, checkpoint_, written_by_;  // local folders; scratch of the writer's agent
};

}  // namespace motley::run
