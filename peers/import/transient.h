#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/elastic/availability.h"
#include "motley/elastic/lifetimes.h"

namespace motley::peers {

/// Importer of the transient-server study (Li, Walls and Guo, ICAC 2019): ResNet-32 on CIFAR-10,
/// 64,000 steps of 128 images by asynchronous workers and parameter servers on rented machines,
/// some of them revoked. `folder` holds training/SET/CLUSTER/. Errors name file and line.
inline constexpr double kTransientSteps = 64'000;

/// Seconds of each run of a cluster, from its first to its last evaluation
/// ("k80_on_demand/2-demand").
Result<std::vector<double>> read_transient_durations(const std::string& folder,
                                                     const std::string& cluster);

/// A run whose machines may be revoked; the first machine is the master, a worker as well.
struct TransientRun {
  std::string zone;
  std::int64_t number = 0;
  double duration_s = 0;
  bool is_stopped = false;       ///< by hand, as the master was revoked
  std::vector<double> uptime_s;  ///< of each machine, since it was started
  std::vector<bool> is_revoked;  ///< of each machine
  bool is_undisturbed() const;   ///< all machines stayed to the end
};

/// Runs of training/k80_spot/CLUSTER ("2-spot"), in the order of its table. vm_data.csv names a
/// machine "[spotN-]ZONE-runNUMBER-ROLE".
Result<std::vector<TransientRun>> read_transient_runs(const std::string& folder,
                                                      const std::string& cluster);

/// Time between the start of the machines and the first evaluation: median over the undisturbed
/// runs of the master's uptime less the duration. 0 without such runs.
double start_delay_s(const std::vector<TransientRun>& runs);

/// When the machines of a run are there, counted from the first evaluation. A revoked one leaves at
/// its uptime less `delay_s`, or at once.
std::vector<elastic::AvailabilityTrace> presences_of(const TransientRun& run, double delay_s);

/// Share of 64,000 steps that a run of training/k80_spot/CLUSTER had done at its evaluations:
/// seconds since the first one, and steps (train_data.csv).
struct Progress {
  double at_s = 0, steps = 0;
};
Result<std::vector<Progress>> read_progress(const std::string& folder, const std::string& cluster,
                                            const TransientRun& run);

/// The 152 dated lives of lifetime/lifetime.csv: kind ("k80"), zone ("us-west1-b"), start and end
/// in seconds since the first start; lives that came near the 24 h limit are not lost. A name is
/// "a-[KIND-]ZONE-NUMBER[less]" below a line with the kind. Rows without dates are skipped.
struct DatedLife {
  std::string name;
  elastic::RentedMachine machine;
};
Result<std::vector<DatedLife>> read_transient_lifetimes(const std::string& folder);

}  // namespace motley::peers
