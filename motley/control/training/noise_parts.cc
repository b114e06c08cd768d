#include "motley/control/training/noise_parts.h"

#include "motley/base/json.h"

namespace motley::control {

void NoiseParts::add(int process, const Json& squares) {
  const auto pairs = squares.value("pieces", std::vector<std::pair<std::int64_t, double>>());
  std::vector<policy::NoiseSeen::Piece>& pieces = pieces_[process];
  pieces.clear();
  for (const auto& [samples, squared_norm] : pairs) pieces.push_back({samples, squared_norm});
  // All ranks have the same sum up to rounding; take the first rank's.
  if (pieces_.begin()->first == process) squared_norm_ = squares.value("whole", 0.0);
}

std::optional<policy::NoiseSeen> NoiseParts::of_step(std::int64_t step, std::size_t ranks) const {
  if (pieces_.size() != ranks) return std::nullopt;
  policy::NoiseSeen seen{.step = step, .squared_norm = squared_norm_, .pieces = {}};
  for (const auto& [process, pieces] : pieces_)
    seen.pieces.insert(seen.pieces.end(), pieces.begin(), pieces.end());
  return seen;
}

}  // namespace motley::control
