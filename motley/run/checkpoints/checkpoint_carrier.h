#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/run/checkpoints/checkpoint.h"
#include "motley/run/hosts/host_link.h"
#include "motley/run/job.h"

namespace motley::run {

/// Brings checkpoints of a job whose rank 0 is on another machine into the run directory here while
/// the job goes on, which does not wait for them: each that rank 0 has said is whole or, where they
/// come faster than the cable carries them, the newest, and the best one. Here each is the latest
/// once it is whole (CheckpointStore::adopt). One thread's; hashes and disks are waited for by
/// another.
class CheckpointCarrier {
 public:
  /// `link`: to the agent that has rank 0's files; it outlives the object.
  CheckpointCarrier(HostLink& link, const std::string& run_dir);
  /// What has come of one that is not whole is removed.
  ~CheckpointCarrier();
  CheckpointCarrier(const CheckpointCarrier&) = delete;
  CheckpointCarrier& operator=(const CheckpointCarrier&) = delete;

  /// Hears each event of the job. True: it is of a checkpoint, and not to be told before get_on
  /// gives it.
  bool keeps_back(const WorkerEvent& event);
  void add_waits(std::vector<pollfd>& waits) const {
    if (!is_idle()) waits.push_back({link_.descriptor(), POLLIN, 0});  // else nobody reads
  }
  /// Goes on with what there is to do, without waiting. Events of checkpoints that are safe now, of
  /// which `path` is here and `note` says how they came. Errors, after which it is idle: the host
  /// is gone or gives nothing for kMostQuiet; `run.checkpoint-write`: it cannot be written here, or
  /// has come damaged.
  Result<std::vector<WorkerEvent>> get_on();
  /// Bytes that have come of all checkpoints.
  std::int64_t carried() const { return carried_; }
  bool is_idle() const { return !current_ && !newest_ && !best_; }

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Carried {
    WorkerEvent event;
    std::int64_t step = 0, bytes = 0;
    int fetch = 0;
    Time begun, heard;  ///< since when nothing more has come
    std::future<Result<std::string>> adopted;
  };

  Result<void> begin();
  Result<void> receive();
  Result<std::optional<WorkerEvent>> settle();
  Result<std::vector<WorkerEvent>> work();

  HostLink& link_;
  CheckpointStore store_;
  std::optional<WorkerEvent> newest_, best_;  // that are still to be brought
  std::int64_t best_step_ = -1;
  std::optional<Carried> current_;
  std::int64_t carried_ = 0;
};

}  // namespace motley::run
