#pragma once

#include <cstddef>
#include <vector>

#include "motley/plan/ranges.h"
#include "motley/synth/accumulation.h"

namespace motley::synth {

/// Operators of the model that are done again in backward passes: of each replica, and of which
/// replica each micro-batch is.
struct Recomputed {
  std::vector<std::vector<plan::OpRange>> operators;  ///< by replica
  std::vector<std::size_t> replica_of;                ///< by micro-batch
};

/// The step in which what these operators make in a micro-batch's forward pass is not what its
/// backward pass reads: in front of the first backward operator that reads any of it stand copies
/// of those operators that this one needs, in their order, on values that are kept. So each is done
/// again at most once, as late as can be, and all else stays as it was. Random draws are by
/// element (graph/draws.h), so a copy draws the same.
///
/// Only operators of forward passes are done again, and of several micro-batches those that work on
/// samples: what they share is kept. O(graph).
Accumulation recompute(Accumulation accumulation, const Recomputed& recomputed);

}  // namespace motley::synth
