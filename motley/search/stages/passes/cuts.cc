#include <algorithm>
#include <utility>

#include "motley/search/stages/passes/improvers.h"

namespace motley::search {
namespace {

constexpr std::size_t kRefined = 3;     // mixes: each move costs simulations of a new shape
constexpr double kSmallestMove = 1e-4;  // of the expected step, that is an improvement

/// Tries each cut once; false: none is better elsewhere.
Result<bool> move_once(const SearchSpace& space, ShapeEstimates& estimates, RankedMix& ranked) {
  bool has_moved = false;
  for (std::size_t part = 0; part < ranked.mix.parts.size(); ++part)
    for (std::size_t s = 0; s + 1 < ranked.mix.parts[part].first.stages.size(); ++s)
      for (const int by : {-1, 1}) {
        ReplicaMix tried = ranked.mix;
        ReplicaShape& shape = tried.parts[part].first;
        if (!move_cut(shape.stages, s, by) || !space.free.is_valid(shape)) continue;
        MOTLEY_RETURN_IF_ERROR(estimates.learn(shape, ranked.seconds));
        const double seconds = estimates.expected_step(tried);
        if (seconds >= ranked.seconds * (1 - kSmallestMove)) continue;
        ranked.seconds = seconds;
        ranked.mix = std::move(tried);
        has_moved = true;
      }
  return has_moved;
}

}  // namespace

Result<void> refine_cuts(const SearchSpace& space, ShapeEstimates& estimates, RankedMixes& ranked) {
  for (std::size_t i = 0; i < std::min(kRefined, ranked.size()); ++i) {
    if (is_one_replica(ranked[i].mix) || ranked[i].is_refined) continue;
    for (bool has_moved = !space.question.limits.one_layer_stages; has_moved;) {
      MOTLEY_ASSIGN(has_moved, move_once(space, estimates, ranked[i]));
    }
    ranked[i].is_refined = true;
  }
  sort_mixes(ranked);
  return {};
}

}  // namespace motley::search
