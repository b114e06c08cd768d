#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/policy/observation.h"

namespace motley::control {

/// What ranks said of one step's gradients (event `step`, key `squares`: docs/formats/job.md),
/// until all have.
class NoiseParts {
 public:
  /// By the process that said it.
  void add(int process, const Json& squares);
  /// With the pieces in the order of the processes; none: of so many ranks some have said nothing.
  std::optional<policy::NoiseSeen> of_step(std::int64_t step, std::size_t ranks) const;

 private:
  std::map<int, std::vector<policy::NoiseSeen::Piece>> pieces_;
  double squared_norm_ = 0;
};

}  // namespace motley::control
