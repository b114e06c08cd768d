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
  std::string market;  ///< file, which is read again when it has changed
  Seconds deadline;    ///< since the run began first
  std::optional<double> budget;
  elastic::RentingRule rule = elastic::RentingRule::kMotley;
  bool gives_back = false;       ///< before the end, where that pays
  std::string hook = "";         ///< a command that asks for machines (docs/formats/market.md)
  std::string return_hook = "";  ///< one that gives them back
  elastic::SpeedTogether speed = nullptr;  ///< of the machines that find_machines finds
};

/// Of machines by what the best split of the batch over them takes; each set of machines of one
/// type (offer, kinds) has one speed, and all are found at once. Null where there are no prices, or
/// more than kMostSets: then speeds are as clusters say (speed, threads, quota).
elastic::SpeedTogether speed_by_prices(const ChosenPlan& chosen,
                                       const std::vector<elastic::JobMachine>& machines);
inline constexpr std::size_t kMostSets = 200;

/// The nodes of a cluster as machines of a market: those that say a zone are rented, by the offer
/// of their kind, zone and spot; the others are one's own. `absent`: devices that are not there at
/// the beginning. Usage errors: `market.node`, a node that no offer fits, or no node with a zone;
/// `market.offer`, an offer of a kind that no device is of; `market.server`, `market.absent`,
/// a machine of which only some devices are absent.
Result<std::vector<elastic::JobMachine>> find_machines(const elastic::Market& market,
                                                       const cluster::Cluster& cluster,
                                                       const std::vector<DeviceId>& ids,
                                                       const std::vector<std::string>& absent);

/// Steps between two checkpoints as the hazard of these machines says (elastic/mix.h); none: one's
/// own are among them, or all stay: nothing is lost.
std::optional<std::int64_t> steps_between_checkpoints(
    const MarketQuestion& question, const std::vector<elastic::JobMachine>& machines, Seconds step,
    Bytes state);

/// Who rents for a training of so many steps, which take `step` with the machines that are there.
elastic::JobRenting make_renting(const MarketQuestion& question,
                                 std::vector<elastic::JobMachine> machines,
                                 const RentChoices& choices, std::int64_t steps,
                                 std::optional<Seconds> step);

}  // namespace motley::control
