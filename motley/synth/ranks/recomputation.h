#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "motley/plan/ranges.h"
#include "motley/synth/ranks/accumulation.h"

namespace motley::synth {

/// Parameters, by name, that a region keeps sharded and gathers again for each pass.
struct GatheredAgain {
  std::vector<plan::OpRange> covers;  ///< the region's operators; empty: all
  std::set<std::string> parameters;
};

/// The operators of the model to recompute in backward passes, and parameters to gather again.
struct Recomputed {
  std::vector<std::vector<plan::OpRange>> operators;      ///< by replica
  std::vector<std::size_t> replica_of;                    ///< by micro-batch: its replica
  std::vector<std::vector<GatheredAgain>> gathered = {};  ///< by replica: its regions
};

/// Returns the step in which the backward pass recomputes these operators' results instead of
/// reading those of the forward pass. Copies of the needed operators stand before the first
/// backward operator that reads any result, in their order, on values that are kept. So each is
/// recomputed at most once, as late as possible, and all else is unchanged. Random draws are per
/// element (graph/draws.h), so a copy draws the same numbers.
///
/// Only operators of forward passes are recomputed and, with several micro-batches, only those on
/// samples: values shared by micro-batches are kept.
///
/// A parameter that is gathered again is a separate source (Accumulation::again) in each forward
/// and backward pass of each micro-batch that reads it. So its whole copy lives only from the first
/// to the last operator of that pass which needs it. Values made of parameters alone and as large
/// (a transpose, a cast) have copies in the same passes, before their first readers. Only
/// micro-batches' readers in the region that makes a value get its copies. Values shared by several
/// micro-batches (a penalty) read the original. O(graph).
Accumulation recompute(Accumulation accumulation, const Recomputed& recomputed);

}  // namespace motley::synth
