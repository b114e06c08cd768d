#pragma once

#include <string_view>
#include <vector>

#include "motley/base/result.h"
#include "motley/search/stages/stage_search.h"

namespace motley::peers {

/// Spaces of plans that other planners search, by their published descriptions. All are narrower
/// than search/stages': what each restriction costs is the difference of the best plans, both
/// priced by the same evaluator.
enum class StageSpace {
  /// Pipelines of one kind each; the same number of stages, degree, micro-batch and micro-batches
  /// on
  /// all; layers even by count.
  kEqual,
  /// Pools apart: on each the pipelines that do most there, all alike (stages, degree,
  /// micro-batch),
  /// layers even by count; samples by speed.
  kUniform,
  /// AMP (NeurIPS 2022): the same number of stages, degree, samples and micro-batch on all
  /// replicas,
  /// all devices used, ranks stage by stage in the order of the pools or against it, so that a
  /// stage
  /// may have several kinds; layers cut by dynamic programming for the slowest device of each
  /// stage,
  /// the same on all replicas.
  kAmp,
  /// Sailor (SOSP 2025): layers even by count for each number of stages, which all replicas share,
  /// as
  /// they do the micro-batch and the number of micro-batches (rounded up, so a plan may do more
  /// than
  /// the batch); kind and degree are free for every stage of every replica.
  kSailor,
};
std::string_view space_name(StageSpace space);

/// The best plan of the space that was found. 1F1B, placed stage by stage. kEqual: all of the
/// space's plans are simulated. kAmp: those that could be quicker by fill and slowest stage.
/// kSailor: for each number of stages, micro-batch and replicas whether so many fit, by column
/// generation as in search/stages/sample_bound.h, at the best time so far; the winner is simulated.
/// Numbers of replicas that are neither a power of two nor three times one are left out. Absent:
/// nothing fits.
Result<std::optional<search::PricedStagePlan>> find_restricted(
    StageSpace space, const search::StageQuestion& question);

}  // namespace motley::peers
