#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "motley/base/result.h"
#include "motley/run/checkpoints/checkpoint.h"
#include "motley/run/hosts/host_link.h"
#include "motley/run/job.h"

namespace motley::run {

/// Brings checkpoints from rank 0 on another machine into the local run directory without delaying
/// the job. It brings every checkpoint that rank 0 reports as whole; if they come faster than the
/// network carries them, the newest and the best one. Each becomes the latest here once it is whole
/// (CheckpointStore::adopt). Used by one thread; another one hashes and writes to disk.
class CheckpointCarrier {
 public:
  /// `link`: to the agent that has rank 0's files; outlives the object.
  CheckpointCarrier(HostLink& link, const std::string& run_dir);
  /// Removes what has arrived of an unfinished checkpoint.
  ~CheckpointCarrier();
  CheckpointCarrier(const CheckpointCarrier&) = delete;
  CheckpointCarrier& operator=(const CheckpointCarrier&) = delete;

  /// Inspects each event. True: it announces a checkpoint; withhold it until get_on returns it.
  bool keeps_back(const WorkerEvent& event);
  void add_waits(std::vector<pollfd>& waits) const {
    if (!is_idle()) waits.push_back({link_.descriptor(), POLLIN, 0});  // otherwise nobody reads it
  }
  /// Continues without waiting. Returns events of checkpoints that are safe here; `path` is local
  /// and `note` describes the transfer. It is idle after an error: the host is gone or sends
  /// nothing for kMostQuiet; `run.checkpoint-write`: it cannot be written here or arrived damaged.
  Result<std::vector<WorkerEvent>> get_on();
  /// Tells whether bytes of a checkpoint were received since the last call.
  bool has_carried() { return std::exchange(told_, carried_) != carried_; }
  bool is_idle() const { return !current_ && !newest_ && !best_; }

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Carried {
    WorkerEvent event;
    std::int64_t step = 0, bytes = 0;
    int fetch = 0;
    Time begun, heard;  ///< heard: when data last arrived
    std::future<Result<std::string>> adopted;
  };

  Result<void> begin();
  Result<void> receive();
  Result<std::optional<WorkerEvent>> settle();
  Result<std::vector<WorkerEvent>> work();

  HostLink& link_;
  CheckpointStore store_;
  std::optional<WorkerEvent> newest_, best_;  // not yet brought
  std::int64_t best_step_ = -1;
  std::optional<Carried> current_;
  std::int64_t carried_ = 0, told_ = 0;  // bytes received
};

}  // namespace motley::run
