#pragma once

#include <optional>
#include <string_view>

#include "motley/base/result.h"
#include "motley/search/stages/stage_search.h"

namespace motley::peers {

/// Other planners' spaces of stage plans, by their publications, with our code, costs and
/// simulator. The difference of the best plans is the cost of a restriction.
enum class StageSpace {
  /// Pipelines of one kind each: equal stages, degree, micro-batch, samples; layers even by count.
  kEqual,
  /// Separate kinds: on each, identical pipelines (stages, degree, micro-batch) of the most
  /// throughput, layers even by count; samples by speed.
  kUniform,
  /// AMP (NeurIPS 2022): equal stages, degree, samples and micro-batch on all replicas; all devices
  /// used; ranks stage by stage in the order of the pools or its reverse, so a stage may have
  /// several kinds; layers cut for the slowest device of each stage, identically on all replicas.
  kAmp,
  /// Sailor (SOSP 2025): layers even by count for each number of stages; replicas share that
  /// number, micro-batch and samples. Each stage of each replica has its own kind and degree.
  kSailor,
  /// HARP (EuroSys 2026): one pipeline through all pools in order, with every device used; a stage
  /// is some devices of one host; H-1F1B; recomputes everything where units can.
  kHarp,
  /// Zorse (arXiv 2507.10392): groups of whole hosts, of different kinds, each with a range of
  /// layers sized by its speed. Each member of a group takes equal micro-batches by its speed, at
  /// least one. Here a micro-batch stays with the members of one rank, fastest with fastest. Where
  /// the states of a device's layers do not fit, members are several identical devices of a host
  /// (in Zorse a group's states are sharded).
  kZorse,
};

/// A space's planner, and its owner for sentences.
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
std::optional<StageSpace> find_stage_space(std::string_view planner);

/// Finds the best plan of the space, simulated; its bound is of rates alone. 1F1B, placed stage by
/// stage, except for kHarp. Divides the batch exactly where a published space rounds up. kEqual
/// searches all plans. kAmp, kHarp and kZorse search all that could be faster by fill and slowest
/// stage; kZorse with groups of equal numbers of hosts, in order or dealt, or a pool each. kUniform
/// and kSailor find the best by the model of shape_search.h, kSailor by column generation as in
/// sample_bound.h and only with numbers of replicas that are a power of two or three times one.
/// Only kHarp has pipelines of more than 16 stages. Usage error for a batch below 1.
Result<search::StageOutcome> find_restricted(StageSpace space,
                                             const search::StageQuestion& question);

}  // namespace motley::peers
