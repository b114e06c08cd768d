#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "motley/base/units.h"
#include "motley/graph/rules/strategy.h"
#include "motley/synth/stages/stage_graphs.h"
#include "motley/synth/step/arguments.h"

namespace motley::synth {

/// A device's part of a gradient, as its region keeps the parameter.
struct GradientShare {
  std::size_t stage = 0, member = 0, rank = 0;
  std::int64_t output = 0;  ///< of the stage's graph
  graph::Form form;         ///< of the parameter
  bool is_term = false;     ///< the region's devices have terms of it
  std::int64_t ready = 0;   ///< position of the step behind which it is there
  int bucket = -1;          ///< of the region's own exchanges; -1: in none
};

/// A device that has rows [begin, end) of a parameter of several regions.
struct GradientHolder {
  GradientShare share;
  std::vector<GradientShare> further = {};  ///< of other regions of the same device
  bool is_giver = true;                     ///< false: another device of its region gives the same
  std::int64_t begin = 0, end = 0;
  std::int64_t own_begin = 0, own_count = 0;  ///< where states are shared: rows that it owns

  std::int64_t ready() const;
};

/// A gradient that is summed over regions, seen as a slab.
struct SharedGradient {
  std::vector<GradientHolder> holders;  ///< one a rank
  graph::Slab slab;
  DType dtype = DType::kF32;
  bool has_owners = false;  ///< each row has one owner
  bool is_even = false;     ///< all holders own as much
};

/// Rows of a gradient that the same devices have, or of which one is the owner.
struct GradientInterval {
  std::size_t gradient = 0;
  std::int64_t begin = 0, end = 0;
  std::map<std::size_t, std::size_t> holders = {};  ///< by rank, of the gradient's
  std::size_t first = 0;                            ///< rank of the first holder
  std::size_t owner = 0;                            ///< rank of the owner, if there are owners
};

/// Intervals that the same devices sum together.
struct SumBucket {
  std::vector<std::size_t> ranks;  ///< ascending
  DType dtype = DType::kF32;
  bool has_owners = false;  ///< intervals are in the order of these
  std::vector<std::size_t> intervals = {};
  std::map<std::size_t, std::int64_t> packed = {};  ///< by rank: behind which position
  std::int64_t begins = 0;                          ///< the same of the sum
  std::int64_t bytes = 0;
  double rate = 0;  ///< at which its slowest holder gets bytes; 0: not known
};

/// What is summed together, and when.
struct GradientSums {
  std::vector<SharedGradient> gradients;
  std::vector<GradientInterval> intervals = {};  ///< in the order in which they are there
  std::vector<SumBucket> buckets = {};           ///< in the order of their sums

  Shape rows_of(std::size_t interval) const;
  std::int64_t elements(std::size_t interval) const;
  /// By rank of the bucket's how many elements it owns.
  Shape owned_elements(const SumBucket& bucket) const;
};

struct SumOptions {
  const StagedStep& step;
  Bytes bucket_bytes;
  /// Position up to which a rank's regions use its transfer lane for their operators.
  std::function<std::int64_t(std::size_t rank)> busy_until;
};

/// Cuts gradients where rows of holders and owners begin and end, puts intervals of the same
/// devices into buckets, and orders these; all holders keep to that order. The sum that can begin
/// first does: when all have packed it and no holder is in another one; of equals the one that is
/// ready first. In order of readiness, replicas that are cut differently would wait for each other
/// in a chain: a holder of two stretches of layers sums one behind the other, whose holders wait
/// for a third. O(n log n) intervals.
GradientSums find_gradient_sums(std::vector<SharedGradient> gradients, const SumOptions& options);

}  // namespace motley::synth
