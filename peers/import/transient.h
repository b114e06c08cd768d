#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/elastic/availability.h"
#include "motley/elastic/lifetimes.h"

namespace motley::peers {

/// Imports the transient-server study (Li, Walls and Guo, ICAC 2019): ResNet-32 on CIFAR-10, 64,000
/// steps of 128 images by asynchronous workers and parameter servers on rented machines, some of
/// them revoked. `folder` has training/SET/CLUSTER/. Errors name file and line.
inline constexpr double kTransientSteps = 64'000;

/// Reads seconds of each run of a cluster ("k80_on_demand/2-demand"), first to last evaluation.
Result<std::vector<double>> read_transient_durations(const std::string& folder,
                                                     const std::string& cluster);

/// A run with revocable machines; the first machine is the master, a worker too.
struct TransientRun {
  std::string zone;
  std::int64_t number = 0;
  double duration_s = 0;
  bool is_stopped = false;       ///< by hand, after the master's revocation
  std::vector<double> uptime_s;  ///< of each machine, since its start
  std::vector<bool> is_revoked;  ///< of each machine
  bool is_undisturbed() const;   ///< all machines stayed to the end
};

/// Reads training/k80_spot/CLUSTER ("2-spot"). Machines are "[spotN-]ZONE-runNUMBER-ROLE".
Result<std::vector<TransientRun>> read_transient_runs(const std::string& folder,
                                                      const std::string& cluster);

/// Returns the time from the machines' start to the first evaluation: the median over undisturbed
/// runs of the master's uptime less the duration. 0 without such runs.
double start_delay_s(const std::vector<TransientRun>& runs);

/// Returns presences since the first evaluation; a revoked machine leaves at uptime - `delay_s`.
std::vector<elastic::AvailabilityTrace> presences_of(const TransientRun& run, double delay_s);

/// Progress in training/k80_spot/CLUSTER since the first evaluation (train_data.csv).
struct Progress {
  double at_s = 0, steps = 0;
};
Result<std::vector<Progress>> read_progress(const std::string& folder, const std::string& cluster,
                                            const TransientRun& run);

/// Reads the 152 dated lives of lifetime/lifetime.csv: kind ("k80"), zone ("us-west1-b"), start and
/// end in seconds since the first start. Lives that came near the 24 h limit are not lost. Names
/// are "a-[KIND-]ZONE-NUMBER[less]" below a line with the kind. Rows without dates are skipped.
struct DatedLife {
  std::string name;
  elastic::RentedMachine machine;
};
Result<std::vector<DatedLife>> read_transient_lifetimes(const std::string& folder);

}  // namespace motley::peers
