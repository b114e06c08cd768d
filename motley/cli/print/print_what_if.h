#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/control/planning/what_if.h"

namespace motley::cli {

/// A plan, what was foreseen of it, and what the planner said to questions about it: to the first,
/// "as it is", and to others.
struct Explained {
  const control::Inputs& inputs;
  const plan::Plan& plan;
  const control::Predicted& predicted;
  std::vector<control::Consequence> consequences;
  std::int64_t samples = 0;  ///< of an epoch; 0: not known
};

/// Keys of docs/interfaces.md.
Json explained_to_json(const Explained& explained);
/// What binds, then a row a question, the fastest first; the order by cost where there are prices.
std::string print_explained(const Explained& explained);

/// An epoch of so many samples, at a price an hour; none: one of them is not known.
std::optional<double> cost_per_epoch(std::optional<double> per_hour, Seconds step,
                                     std::int64_t global_batch, std::int64_t samples);
/// "1.20 an hour, 0.35 an epoch of 1797 samples"; "" without a price.
std::string cost_text(std::optional<double> per_hour, Seconds step, std::int64_t global_batch,
                      std::int64_t samples);

}  // namespace motley::cli
