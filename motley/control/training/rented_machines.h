#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/control/planning/chosen_plan.h"
#include "motley/control/planning/market.h"
#include "motley/elastic/job_renting.h"

namespace motley::control {

/// How a training rents machines while it runs.
struct RentChoices {
  std::string market;  ///< file; read again when it changes
  Seconds deadline;    ///< since the run first began
  std::optional<double> budget;
  elastic::RentingRule rule = elastic::RentingRule::kMotley;
  bool gives_back = false;  ///< before the end, if that saves money
  std::string hook = "";    ///< command that requests machines (docs/formats/market.md)
  std::string return_hook = "";
  elastic::SpeedTogether speed = nullptr;  ///< of the machines from find_machines
};

/// Returns speeds from the best split of the batch over a set of machines. Machines of one type
/// (offer, kinds) are interchangeable, so sets of types are priced, all in advance. Null without
/// prices, or with more than kMostSets sets: clusters then give speeds (speed, threads, quota).
elastic::SpeedTogether speed_by_prices(const ChosenPlan& chosen,
                                       const std::vector<elastic::JobMachine>& machines);
inline constexpr std::size_t kMostSets = 200;

/// Returns a cluster's nodes as machines of a market. A node with a zone is rented, by the offer of
/// its kind, zone and spot; others are owned. `absent`: devices that are not there at first. Usage
/// errors: `market.node`, no fitting offer, or no node with a zone; `market.offer`, a kind that no
/// device has; `market.server`; `market.absent`, only some of a machine's devices are absent.
Result<std::vector<elastic::JobMachine>> find_machines(const elastic::Market& market,
                                                       const cluster::Cluster& cluster,
                                                       const std::vector<DeviceId>& ids,
                                                       const std::vector<std::string>& absent);

/// Returns steps between checkpoints by the machines' hazard (elastic/mix.h); none: some are owned,
/// or all stay, so nothing is lost.
std::optional<std::int64_t> steps_between_checkpoints(
    const MarketQuestion& question, const std::vector<elastic::JobMachine>& machines, Seconds step,
    Bytes state);

/// Makes the policy for `steps` steps, of `step` each on the present machines.
elastic::JobRenting make_renting(const MarketQuestion& question,
                                 std::vector<elastic::JobMachine> machines,
                                 const RentChoices& choices, std::int64_t steps,
                                 std::optional<Seconds> step);

}  // namespace motley::control
