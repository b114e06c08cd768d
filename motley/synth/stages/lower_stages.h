#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "motley/base/result.h"
#include "motley/cluster/cluster.h"
#include "motley/graph/graph.h"
#include "motley/plan/plan.h"
#include "motley/program/program.h"
#include "motley/synth/step/sharding.h"

namespace motley::synth {

/// Who runs a program: the plan's own devices, or more, as those of another program.
struct StageRanks {
  std::vector<plan::Member> members;        ///< by rank
  std::vector<program::Group> groups = {};  ///< that keep their numbers; more may be added
};

/// Lowers a verified plan with stages (plan::has_stages): replicas cut into regions, each on one or
/// several devices, with micro-batches of their own (stage_graphs.h, docs/algorithms.md, "Stages").
///
/// Each region's graph is lowered as a sharding over its devices. A value goes from the devices of
/// the region that makes it to those of one that reads it by sends and receives, every part once:
/// cut along a dimension as the maker has it, or as the readers are many, and put together again by
/// the readers' own exchanges. Gradients are summed over all that hold a parameter, as soon as they
/// have them, by intervals in which the holders are the same; loss and wish to stop over all
/// devices. Every device does what it does in one order of the whole step, so that none waits for
/// another in a circle; a receive may begin eight tasks ahead, and a send's buffer is free eight
/// tasks later, of what a step sends once when gradients come back.
///
/// Metrics are numbers that one region has whole: all devices report them.
///
/// `ranks`: of the program; those that the plan does not have only report. Stale
/// errors where regions are not of this graph; usage errors of accumulate_replicas, and
/// (synth.unsupported) where replicas keep one parameter cut along different dimensions, or a
/// device has a parameter in two regions that several devices share. Not verified.
Result<program::Program> lower_stages(const graph::Graph& graph, const plan::Plan& plan,
                                      const cluster::Cluster& cluster, const LowerOptions& options,
                                      const StageRanks& ranks);

/// What pricing a step needs: programs of some ranks that stand for all.
struct StageKinds {
  program::Program program;  ///< of these alone; its groups and peers are among them
  /// By device of the program: the ranks for which it stands, itself first. What devices exchange
  /// among themselves, the n-th ranks for which they stand do.
  std::vector<std::vector<std::size_t>> identical;
  std::vector<std::vector<std::size_t>> groups;  ///< by group of the program: all of its ranks
};

/// The same as lower_stages of the ranks of a plan, a rank of each kind: alike in class (by rank:
/// devices with the same times) and in what it does and exchanges with whom. Devices of a region
/// that have equal parts are, mostly. None where their parts differ only by rounding. Not verified.
Result<std::optional<StageKinds>> lower_stage_kinds(const graph::Graph& graph,
                                                    const plan::Plan& plan,
                                                    const cluster::Cluster& cluster,
                                                    const std::vector<int>& classes);

}  // namespace motley::synth
