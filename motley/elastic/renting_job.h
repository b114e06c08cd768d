#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/elastic/market.h"

namespace motley::elastic {

/// A machine that an elastic job has or may rent.
struct JobMachine {
  std::string name;
  std::vector<std::string> devices;  ///< observations name any of them
  std::optional<std::size_t> offer;  ///< of the market; none: an own machine, free
  double speed = 1;                  ///< alone, relative to the others
  bool is_there = true;              ///< at the beginning of the job
};

/// Indices of machines.
using Machines = std::set<std::size_t>;
/// Predicts the steps per second of these machines together; 0: they cannot train.
using SpeedTogether = std::function<double(const Machines&)>;

/// What is requested while machines are missing and the deadline forces nothing: our rule, or other
/// tools' (docs/algorithms.md, "Renting"). kNone: lost machines are not replaced.
enum class RentingRule { kMotley, kGreedy, kOnDemand, kUniform, kNone };
/// Returns "motley", "greedy", "on-demand", "uniform", "none".
std::vector<std::string> renting_rules();
/// Finds a rule by name. Usage error `elastic.policy` with a suggestion.
Result<RentingRule> find_renting_rule(const std::string& name);

struct RentingJob {
  Market market;
  std::vector<JobMachine> machines;
  std::int64_t steps = 0;       ///< of the whole training
  std::optional<Seconds> step;  ///< predicted for the present machines
  Seconds deadline;             ///< since the job began
  std::optional<double> budget;
  Seconds tick{1};  ///< interval of decisions without news
  RentingRule rule = RentingRule::kMotley;
  bool gives_back = false;  ///< before the end, where that pays; only by our rule
  /// Null: the sum of the machines' own speeds.
  SpeedTogether speed = nullptr;
};

}  // namespace motley::elastic
