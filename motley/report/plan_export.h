#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "motley/base/result.h"
#include "motley/cluster/cluster.h"
#include "motley/graph/graph.h"
#include "motley/plan/plan.h"

namespace motley::report {

/// Settings of another tool that say what a plan says.
struct PlanSettings {
  std::string text;                ///< a flag, a file's content, an environment
  std::vector<std::string> notes;  ///< what of the plan that tool cannot say
};

/// Of tools: what --to may be.
std::vector<std::string> plan_tools();

/// A verified plan of the model in the words of a tool:
///
///   megatron    --pipeline-model-parallel-layout: "Etttt|tttt|tttL", E the layers before the first
///               of the repeated ones (h.0, layers.0, ...), t one of these, L those behind, and the
///               sizes of micro-batches and batch; interleaved ones as virtual stages, of which it
///               gives rank r of S the words r, r + S, r + 2 S, ...
///   torchtitan  parallelism.module_fqns_per_model_part: by stage the modules whose layers it has;
///               interleaved ones with their schedule
///   deepspeed   a hostfile, "HOST slots=N", and the batch sizes of its configuration
///   torchrun    a command line for each host, with its number of processes
///
/// Usage errors (plan.export): another tool; a plan that the tool has no words for: replicas that
/// differ, for megatron and torchtitan; stages that do not end between two layers; devices that
/// have several stages in another order than round after round.
Result<PlanSettings> export_plan(std::string_view tool, const plan::Plan& plan,
                                 const graph::Graph& graph, const cluster::Cluster& cluster);

}  // namespace motley::report
