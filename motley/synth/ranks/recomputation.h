#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "motley/plan/ranges.h"
#include "motley/synth/ranks/accumulation.h"

namespace motley::synth {

/// Parameters that a region keeps in parts and gathers again for each pass, by name.
struct GatheredAgain {
  std::vector<plan::OpRange> covers;  ///< the region's operators of the model; empty: all
  std::set<std::string> parameters;
};

/// What is done again: operators of the model, in backward passes, and what makes parameters whole,
/// in each pass; of each replica, and of which replica each micro-batch is.
struct Recomputed {
  std::vector<std::vector<plan::OpRange>> operators;      ///< by replica
  std::vector<std::size_t> replica_of;                    ///< by micro-batch
  std::vector<std::vector<GatheredAgain>> gathered = {};  ///< by replica: of its regions
};

/// The step in which what these operators make in a micro-batch's forward pass is not what its
/// backward pass reads: in front of the first backward operator that reads any of it stand copies
/// of those operators that this one needs, in their order, on values that are kept. So each is done
/// again at most once, as late as can be, and all else stays as it was. Random draws are by
/// element (graph/draws.h), so a copy draws the same.
///
/// Only operators of forward passes are done again, and of several micro-batches those that work on
/// samples: what they share is kept.
///
/// A parameter that is gathered again is a source of its own (Accumulation::again) in each pass,
/// forward and backward, of each micro-batch that reads it: so a whole copy of it lasts from the
/// first to the last operator of that pass which wants it whole. What is made of parameters alone
/// and is as large (a transpose, a cast) has copies in the same passes, in front of their first
/// readers. Only readers in the region that makes it get them, of micro-batches; what several
/// micro-batches share (a penalty) reads what it did. O(graph).
Accumulation recompute(Accumulation accumulation, const Recomputed& recomputed);

}  // namespace motley::synth
