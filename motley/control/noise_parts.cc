#include "motley/control/noise_parts.h"

#include "motley/base/json.h"

namespace motley::control {

void NoiseParts::add(int process, const Json& squares) {
  pieces_[process] = {squares.value("samples", std::int64_t{0}), squares.value("own", 0.0)};
  // All have the same sum, but for the order in which it was added up.
  if (pieces_.begin()->first == process) squared_norm_ = squares.value("whole", 0.0);
}

std::optional<policy::NoiseSeen> NoiseParts::of_step(std::int64_t step, std::size_t ranks) const {
  if (pieces_.size() != ranks) return std::nullopt;
  policy::NoiseSeen seen{.step = step, .squared_norm = squared_norm_, .pieces = {}};
  for (const auto& [process, piece] : pieces_) seen.pieces.push_back(piece);
  return seen;
}

}  // namespace motley::control
