#include "motley/adapt/noise_estimate.h"

#include <cmath>
#include <cstddef>

namespace motley::adapt {

std::optional<NoisePieces> find_pieces(const policy::NoiseSeen& seen) {
  const auto is_norm = [](double x) { return std::isfinite(x) && x >= 0; };
  NoisePieces pieces;
  if (!is_norm(seen.squared_norm)) return std::nullopt;
  for (const policy::NoiseSeen::Piece& piece : seen.pieces) {
    if (piece.samples <= 0) continue;
    if (!is_norm(piece.squared_norm)) return std::nullopt;
    pieces.sizes.push_back(piece.samples);
    pieces.norms.push_back(piece.squared_norm);
    pieces.batch += static_cast<double>(piece.samples);
  }
  if (pieces.sizes.size() < 2) return std::nullopt;
  return pieces;
}

NoiseMoments join_pieces(const NoisePieces& pieces, double squared_norm, double mean) {
  const double n = static_cast<double>(pieces.sizes.size());
  return {(n * squared_norm - mean) / (n - 1), pieces.batch * (mean - squared_norm) / (n - 1)};
}

std::optional<NoiseMoments> estimate_moments(const policy::NoiseSeen& seen) {
  const std::optional<NoisePieces> pieces = find_pieces(seen);
  if (!pieces) return std::nullopt;
  double mean = 0;
  for (std::size_t i = 0; i < pieces->sizes.size(); ++i)
    mean += static_cast<double>(pieces->sizes[i]) / pieces->batch * pieces->norms[i];
  return join_pieces(*pieces, seen.squared_norm, mean);
}

}  // namespace motley::adapt
