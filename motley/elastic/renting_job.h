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

/// A machine that an elastic job has or may have.
struct JobMachine {
  std::string name;
  std::vector<std::string> devices;  ///< by any of which observations tell it
  std::optional<std::size_t> offer;  ///< of the market; none: one's own, which costs nothing
  double speed = 1;                  ///< beside the others', alone
  bool is_there = true;              ///< when the job begins
};

/// Of a job's, by their places.
using Machines = std::set<std::size_t>;
/// Steps per second that these are believed to do together; 0: they cannot train.
using SpeedTogether = std::function<double(const Machines&)>;

/// What is asked for where the deadline forces nothing and machines are missing: ours, or what
/// others do (docs/algorithms.md, "Renting") as it is for machines that come and go one by one,
/// which keep what they have. kNone: whoever is lost is not replaced.
enum class RentingRule { kMotley, kGreedy, kOnDemand, kUniform, kNone };
/// "motley", "greedy", "on-demand", "uniform", "none".
std::vector<std::string> renting_rules();
/// Usage error `elastic.policy` with a suggestion.
Result<RentingRule> find_renting_rule(const std::string& name);

struct RentingJob {
  Market market;
  std::vector<JobMachine> machines;
  std::int64_t steps = 0;       ///< of the whole training
  std::optional<Seconds> step;  ///< as predicted, with the machines that are there
  Seconds deadline;             ///< since the job began
  std::optional<double> budget;
  Seconds tick{1};  ///< how often it decides without having been told anything
  RentingRule rule = RentingRule::kMotley;
  bool gives_back = false;  ///< before the end, where that pays; ours alone
  /// Null: in proportion to the sum of the machines' own.
  SpeedTogether speed = nullptr;
};

}  // namespace motley::elastic
