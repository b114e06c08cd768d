#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/job/device_table.h"
#include "motley/job/membership.h"
#include "motley/job/plan_requests.h"
#include "motley/job/surroundings.h"
#include "motley/run/recovery.h"

namespace motley::job {

/// Finds by which plan and from which point a job goes on after a halt: from the state of its
/// processes or, where that is incomplete, from a checkpoint.
class Recoveries {
 public:
  /// All arguments outlive it.
  Recoveries(const ControllerOptions& options, const DeviceTable& devices, PlanRequests& requests,
             Plans& plans, Surroundings& around)
      : options_(options), devices_(devices), requests_(requests), plans_(plans), around_(around) {}

  /// Records the latest checkpoint on this host.
  void on_checkpoint(const std::string& path, std::int64_t step) {
    saved_.saved_path = path;
    saved_.saved_step = step;
  }
  std::int64_t saved_step() const;  ///< of the last checkpoint, wherever it is

  /// Returns the change by which all processes, which stand still, go on. `stop`: why they save the
  /// state and stop instead, as they do where no plan is possible without the lost devices. Adds
  /// lost steps to `coming`. Errors: the job ends.
  Result<run::Change> recover(const std::vector<run::RecoveryState>& recovery_states,
                              const std::optional<Error>& stop, MembershipChange& coming);

 private:
  Result<run::Change> recover_from(run::Recovery recovery, int from, int to,
                                   MembershipChange& coming);
  Result<run::Change> give_up(run::Recovery recovery, int from, const Error& why,
                              MembershipChange& coming);
  run::Recovery fall_back(const Error& why, std::int64_t done, MembershipChange& coming);
  Result<void> check_way_back(const run::Recovery& recovery) const;

  const ControllerOptions& options_;
  const DeviceTable& devices_;
  PlanRequests& requests_;
  Plans& plans_;
  Surroundings& around_;
  run::TrainingPoint saved_;  // the latest checkpoint on this host
};

}  // namespace motley::job
