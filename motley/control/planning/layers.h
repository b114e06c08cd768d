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

/// Stages, replicas and micro-batches over the devices of the cluster whose kinds the profile has
/// as `find` finds them. The costs are kept for whoever explains the plan.
struct StageAnswer {
  std::unique_ptr<const search::StageCosts> costs;
  search::StageOutcome outcome;
  double elapsed_s = 0;  ///< of the search
};
using FindStages = std::function<Result<search::StageOutcome>(const search::StageQuestion&)>;
Result<StageAnswer> plan_stages(const LayerFiles& files, const cluster::Cluster& cluster,
                                std::int64_t global_batch, const Clock& clock,
                                const FindStages& find = search::find_stage_plan);

/// What one device of a simulated step of layers does; what is neither is waiting.
struct LayerSpan {
  std::size_t replica = 0, region = 0;
  Seconds compute;  ///< passes and update
  Seconds first;    ///< begin of its first forward
  Seconds last;     ///< end of its last backward
  Seconds end;      ///< of its step
  program::MemoryPeak memory;
  Bytes held;  ///< beside it, by the runtime
};

/// A plan over a layer profile, as a program and on the clock.
struct SimulatedLayers {
  std::shared_ptr<const search::LayerModel> model;
  cluster::Cluster cluster;  ///< of a pipeline that names none: hosts as it fills them
  plan::Plan plan;
  program::Program program;
  trace::Trace trace;
  std::vector<LayerSpan> spans;  ///< by rank
  Seconds step;
  Seconds exchange;  ///< from the last backward of all to the last sum of gradients
  std::optional<search::StagePrice> estimate;  ///< of a pipeline: the search's own clock
  std::optional<Seconds> measured;             ///< of a pipeline that ran
  std::vector<std::string> notes;              ///< what the figures lack, for people
};

/// Simulates a plan: a file of schema motley.plan/1 over the cluster's devices, or a pipeline in
/// Sailor's form, as its runtime runs it (pipeline_stages.h). Usage errors name what is wrong with
/// which file; stale where a plan is not of this profile and cluster.
Result<SimulatedLayers> simulate_layers(const LayerFiles& files, const std::string& plan_path,
                                        const std::string& cluster_path, int steps);

/// What is wanted of it.
enum class Simulated {
  kAll,
  kStep,  ///< beside the plan the step alone: no program, trace and spans, where identical devices
          ///< can stand for each other
};

/// The same of a plan that was just found.
Result<SimulatedLayers> simulate_stages(const LayerFiles& files, const cluster::Cluster& cluster,
                                        const search::PricedStagePlan& found,
                                        const search::StageCosts& costs,
                                        Simulated what = Simulated::kAll);

}  // namespace motley::control
