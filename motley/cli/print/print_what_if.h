#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/control/planning/what_if.h"

namespace motley::cli {

/// A plan, its prediction, and the planner's answers to questions; the first is "as it is".
struct Explained {
  const control::Inputs& inputs;
  const plan::Plan& plan;
  const control::Predicted& predicted;
  std::vector<control::Consequence> consequences;
  std::int64_t samples = 0;  ///< of an epoch; 0: unknown
};

Json explained_to_json(const Explained& explained);
/// Prints what limits the plan, a row per question, and the order by cost if there are prices.
std::string print_explained(const Explained& explained);

/// Returns the cost of an epoch of `samples` samples; none: its size or price is unknown.
std::optional<double> cost_per_epoch(std::optional<double> per_hour, Seconds step,
                                     std::int64_t global_batch, std::int64_t samples);
/// Returns "1.20 an hour, 0.35 an epoch of 1797 samples"; "" without a price.
std::string cost_text(std::optional<double> per_hour, Seconds step, std::int64_t global_batch,
                      std::int64_t samples);

}  // namespace motley::cli
