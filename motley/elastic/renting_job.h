#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/units.h"
#include "motley/elastic/market.h"

namespace motley::elastic {

/// A machine that an elastic job has or may have. A job's speed is in proportion to the sum of its
/// machines' speeds, and measured where such a sum was trained with.
struct JobMachine {
  std::string name;
  std::vector<std::string> devices;  ///< by any of which observations tell it
  std::optional<std::size_t> offer;  ///< of the market; none: one's own, which costs nothing
  double speed = 1;                  ///< beside the others'
  bool is_there = true;              ///< when the job begins
};

struct RentingJob {
  Market market;
  std::vector<JobMachine> machines;
  std::int64_t steps = 0;       ///< of the whole training
  std::optional<Seconds> step;  ///< as predicted, with the machines that are there
  Seconds deadline;             ///< since the job began
  std::optional<double> budget;
  Seconds tick{1};  ///< how often it decides without having been told anything
};

}  // namespace motley::elastic
