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
  bool gives_back = false;       ///< before the end, if that saves money
  std::string hook = "";         ///< command that requests machines (docs/formats/market.md)
  std::string return_hook = "";  ///< command that returns them
  elastic::SpeedTogether speed = nullptr;  ///< of the machines from find_machines
};

/// Returns the speed of sets of machines, from the best split of the batch over each. Machines of
/// one type (offer, kinds) are interchangeable, so each set of types is priced once, all in
/// advance. Null without prices, or with more than kMostSets sets: speeds then follow the cluster
/// file (speed, threads, quota).
elastic::SpeedTogether speed_by_prices(const ChosenPlan& chosen,
                                       const std::vector<elastic::JobMachine>& machines);
inline constexpr std::size_t kMostSets = 200;

/// Returns the nodes of a cluster as machines of a market. A node with a zone is rented, by the
/// offer of its kind, zone and spot; other nodes are owned. `absent`: devices that are not there at
/// first. Usage errors: `market.node`, a node without a fitting offer, or no node with a zone;
/// `market.offer`, an offer of a kind that no device has; `market.server`, `market.absent`, a
/// machine with only some devices absent.
Result<std::vector<elastic::JobMachine>> find_machines(const elastic::Market& market,
                                                       const cluster::Cluster& cluster,
                                                       const std::vector<DeviceId>& ids,
                                                       const std::vector<std::string>& absent);

/// Returns the steps between two checkpoints for the machines' hazard (elastic/mix.h). None: owned
/// machines are among them, or all stay, so nothing is lost.
std::optional<std::int64_t> steps_between_checkpoints(
    const MarketQuestion& question, const std::vector<elastic::JobMachine>& machines, Seconds step,
    Bytes state);

/// Makes the renting policy for a training of `steps` steps of `step` each on the present machines.
elastic::JobRenting make_renting(const MarketQuestion& question,
                                 std::vector<elastic::JobMachine> machines,
                                 const RentChoices& choices, std::int64_t steps,
                                 std::optional<Seconds> step);

}  // namespace motley::control
