#pragma once

#include <optional>
#include <string>
#include <vector>

#include "motley/cli/options/planning_options.h"
#include "motley/control/training/renting.h"

namespace motley::cli {

/// Machines for rent, instead of a cluster.
struct MarketOptions {
  std::string market;
  std::string deadline;
  std::optional<double> budget;
  std::int64_t steps = 0;
  bool is_given() const { return !market.empty(); }
  /// Is any flag given that needs --market?
  bool has_others() const { return !deadline.empty() || budget || steps != 0; }
};
std::vector<Flag> market_flags(MarketOptions& options);

/// Flags of a training that rents machines.
struct RentOptions {
  MarketOptions market;
  std::string policy = "motley";
  std::string hook;
  std::string return_hook;
};
/// Flags for a run; a simulated run needs no hooks.
std::vector<Flag> rent_flags(RentOptions& options);
std::vector<Flag> simulated_rent_flags(RentOptions& options);
enum class Lives { kElastic, kSimulated, kAsPlanned };
/// None: nothing is rented. Usage errors name the flag.
Result<std::optional<control::RentChoices>> make_rent_choices(const RentOptions& options,
                                                              Lives lives);

/// Runs `plan --market`: finds the machines to rent. Exit code 3: no mix fits.
Result<int> plan_to_rent(const MarketOptions& options, const PlanningOptions& planning,
                         const Context& context);

}  // namespace motley::cli
