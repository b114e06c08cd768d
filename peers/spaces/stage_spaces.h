#pragma once

#include <optional>
#include <string_view>

#include "motley/base/result.h"
#include "motley/search/stages/stage_search.h"

namespace motley::peers {

/// Spaces of plans of stages that other planners search, by their published descriptions; own code,
/// and the same costs and simulator as for the whole space (stages/stage_search.h). What each
/// restriction costs is the difference of the best plans.
enum class StageSpace {
  /// Pipelines of one kind each; the same number of stages, degree, micro-batch and samples on all;
  /// layers even by count.
  kEqual,
  /// Kinds apart: on each the pipelines that do most there, all alike (stages, degree,
  /// micro-batch), layers even by count; samples by speed.
  kUniform,
  /// AMP (NeurIPS 2022): the same number of stages, degree, samples and micro-batch on all
  /// replicas, all devices used, ranks stage by stage in the order of the pools or against it, so
  /// that a stage may have several kinds; layers cut for the slowest device of each stage, the same
  /// on all replicas.
  kAmp,
  /// Sailor (SOSP 2025): layers even by count for each number of stages, which all replicas share,
  /// as they do the micro-batch and the samples; kind and degree are free for every stage of every
  /// replica.
  kSailor,
  /// HARP (EuroSys 2026): one pipeline through all pools in their order, of which every device is
  /// used; a stage is some devices of one host; H-1F1B; all is recomputed, where there are units
  /// that recompute.
  kHarp,
  /// Zorse (arXiv 2507.10392): groups of whole hosts, of unlike kinds, have a stretch of layers
  /// each, sized by their speed; each member of a group does as many equal micro-batches as its
  /// speed allows, one at least. Here a micro-batch stays with the members of one rank, fastest
  /// with fastest, and where the states of a device's layers do not fit, members are several alike
  /// devices of a host (in Zorse a group's states are in parts).
  kZorse,
};

/// Its planner's name, and whose it is, for sentences.
struct StageSpaceName {
  StageSpace space;
  std::string_view planner;
  std::string_view title;
};
inline constexpr StageSpaceName kStageSpaces[] = {
    {StageSpace::kEqual, "equal-stages", "equal pipelines"},
    {StageSpace::kUniform, "uniform-stages", "pipelines that are uniform for each kind"},
    {StageSpace::kAmp, "amp", "AMP's space"},
    {StageSpace::kSailor, "sailor", "Sailor's space"},
    {StageSpace::kHarp, "harp", "HARP's space"},
    {StageSpace::kZorse, "zorse", "Zorse's space"},
};
const StageSpaceName& stage_space_name(StageSpace space);
/// By its planner's name.
std::optional<StageSpace> find_stage_space(std::string_view planner);

/// The best plan of the space that was found, simulated; its bound is of rates alone. 1F1B, placed
/// stage by stage, but for kHarp. The batch is divided exactly, where a published space rounds up.
/// Searched: kEqual: all plans. kAmp, kHarp, kZorse: all that could be quicker by fill and slowest
/// stage, of kZorse with groups of as many hosts each, one after the other or dealt, or a pool
/// each. kUniform, kSailor: the best by the model of shape_search.h, the latter by column
/// generation as in sample_bound.h; numbers of replicas that are neither a power of two nor three
/// times one are left out. Pipelines of more than 16 stages: of kHarp only. Usage error for a batch
/// below 1.
Result<search::StageOutcome> find_restricted(StageSpace space,
                                             const search::StageQuestion& question);

}  // namespace motley::peers
