#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "motley/base/result.h"
#include "motley/cluster/cluster.h"
#include "motley/graph/graph.h"
#include "motley/plan/plan.h"

namespace motley::report {

/// A plan as settings of another tool.
struct PlanSettings {
  std::string text;                ///< a flag, a file's content, or environment variables
  std::vector<std::string> notes;  ///< parts of the plan that the tool cannot express
};

/// Lists the values of --to.
std::vector<std::string> plan_tools();

/// Prints a verified plan of the model for another tool:
///
///   megatron    --pipeline-model-parallel-layout: "Etttt|tttt|tttL": E the layers before the
///               first repeated one (h.0, layers.0, ...), t a repeated one, L the layers behind;
///               and the sizes of micro-batches and batch. Interleaved stages are virtual stages:
///               rank r of S gets the words r, r + S, r + 2 S, ...
///   torchtitan  parallelism.module_fqns_per_model_part: the modules of each stage's layers;
///               interleaved stages with their schedule
///   deepspeed   a hostfile, "HOST slots=N", and the batch sizes of its configuration
///   torchrun    a command line for each host, with its number of processes
///
/// Usage errors (plan.export): an unknown tool, or a plan that the tool cannot express: for
/// megatron and torchtitan, replicas that differ; stages that do not end between two layers;
/// interleaved stages in another order than round after round.
Result<PlanSettings> export_plan(std::string_view tool, const plan::Plan& plan,
                                 const graph::Graph& graph, const cluster::Cluster& cluster);

}  // namespace motley::report
