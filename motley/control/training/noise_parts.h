#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/policy/observation.h"

namespace motley::control {

/// Collects ranks' reports on a step's gradients (event `step`, `squares`: docs/formats/job.md).
class NoiseParts {
 public:
  void add(int process, const Json& squares);
  /// Returns the pieces in the order of processes; none: some of `ranks` have not reported.
  std::optional<policy::NoiseSeen> of_step(std::int64_t step, std::size_t ranks) const;

 private:
  std::map<int, std::vector<policy::NoiseSeen::Piece>> pieces_;
  double squared_norm_ = 0;
};

}  // namespace motley::control
