#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "motley/cluster/cluster.h"
#include "motley/control/clock.h"
#include "motley/control/planning/layer_files.h"
#include "motley/plan/plan.h"
#include "motley/program/memory.h"
#include "motley/program/program.h"
#include "motley/search/layers/layer_plan.h"
#include "motley/search/stages/costs/layer_stage_costs.h"
#include "motley/search/stages/stage_search.h"
#include "motley/trace/trace.h"

namespace motley::control {

/// A plan of stages over the cluster's profiled devices, with the costs that explain it.
struct StageAnswer {
  std::unique_ptr<const search::StageCosts> costs;
  search::StageOutcome outcome;
  double elapsed_s = 0;
};
using FindStages = std::function<Result<search::StageOutcome>(const search::StageQuestion&)>;
Result<StageAnswer> plan_stages(const LayerFiles& files, const cluster::Cluster& cluster,
                                std::int64_t global_batch, const Clock& clock,
                                const FindStages& find = search::find_stage_plan);

/// The work of one device in a simulated step of layers; it waits otherwise.
struct LayerSpan {
  std::size_t replica = 0, region = 0;
  Seconds compute;  ///< passes and update
  Seconds first;    ///< begin of its first forward
  Seconds last;     ///< end of its last backward
  Seconds end;      ///< of its step
  program::MemoryPeak memory;
  Bytes held;  ///< by the runtime, beside `memory`
};

/// A plan over a layer profile, with its program and simulation.
struct SimulatedLayers {
  std::shared_ptr<const search::LayerModel> model;
  cluster::Cluster cluster;  ///< of a pipeline without a cluster: hosts as the pipeline fills them
  plan::Plan plan;
  program::Program program;
  trace::Trace trace;
  std::vector<LayerSpan> spans;
  Seconds step;
  Seconds exchange;  ///< from the last backward pass of any device to the last all-reduce
  std::optional<search::StagePrice> estimate;  ///< of a pipeline: the search's own estimate
  std::optional<Seconds> measured;             ///< of a pipeline that ran
  std::vector<std::string> notes;
};

/// Simulates a plan as its runtime runs it: a file of schema motley.plan/1 over the cluster's
/// devices, or a pipeline in Sailor's form (pipeline_stages.h). Usage errors name the file and the
/// fault. Stale: the plan is of another profile or cluster.
Result<SimulatedLayers> simulate_layers(const LayerFiles& files, const std::string& plan_path,
                                        const std::string& cluster_path, int steps);

enum class Simulated {
  kAll,
  /// Without program, trace and spans, if identical devices can share programs.
  kStep,
};

Result<SimulatedLayers> simulate_stages(const LayerFiles& files, const cluster::Cluster& cluster,
                                        const search::PricedStagePlan& found,
                                        const search::StageCosts& costs,
                                        Simulated what = Simulated::kAll);

}  // namespace motley::control
