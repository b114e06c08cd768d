#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "motley/cost/layers/layer_profile.h"
#include "motley/cost/layers/stage_network.h"

namespace motley::cost {

enum class PipelineSchedule {
  k1F1B,   ///< stage s of S runs S-1-s forwards ahead, then one forward, one backward
  kGPipe,  ///< all forwards, then all backwards
};

/// Devices that compute one stage of one replica together.
struct StageGroup {
  std::string kind;
  int tensor_parallel = 1;
  bool operator==(const StageGroup&) const = default;
};

/// Layers [first, end), computed by one group a replica.
struct PipelineStage {
  std::size_t first = 0, end = 0;
  std::vector<StageGroup> replicas;
  bool operator==(const PipelineStage&) const = default;
};

/// Stages cover the layers in order; all have the same replicas. Devices are numbered through the
/// stages, in a stage through its replicas, and fill hosts of their kind in this order.
struct PipelinePlan {
  std::vector<PipelineStage> stages;
  std::int64_t micro_batch = 1;    ///< samples
  std::int64_t micro_batches = 1;  ///< a replica and step
  PipelineSchedule schedule = PipelineSchedule::k1F1B;
  bool operator==(const PipelinePlan&) const = default;
};

/// What neither layer profiles nor network fits say. The defaults are what physics alone gives.
struct PipelineConstants {
  /// Time of a collective between hosts / time of its ring at the rate of single messages.
  double exchange_slowdown = 1;
  Bytes context;                  ///< held by driver, libraries and communicators on each device
  double allocator_overhead = 1;  ///< bytes reserved / bytes in use at the peak
};

/// A stage's part of a step; the four parts sum to the step.
struct StageTimes {
  Seconds compute;        ///< forwards, backwards, update
  Seconds communication;  ///< messages that the stage stands still for; exchange of gradients
  Seconds waiting;        ///< for a neighbour, between its first and its last operation
  Seconds bubble;         ///< filling before the first forward, draining after the last operation
};

/// Bytes of a stage's device at the peak: the first backward with all micro-batches in flight.
struct StageMemory {
  Bytes context;
  Bytes states;       ///< weights, gradients, optimizer state
  Bytes activations;  ///< kept by the micro-batches in flight
  Bytes workspace;    ///< gradients of what the layer in backward kept: the largest layer's
  Bytes bucket;       ///< flat copy of the gradients for their exchange
  Bytes slack;        ///< reserved by the allocator beyond the parts above, but the bucket
  Bytes total() const { return context + states + activations + workspace + bucket + slack; }
};

struct PipelineStep {
  Seconds step;
  std::vector<StageTimes> times;    ///< by stage, of its slowest replica
  std::vector<StageMemory> memory;  ///< by stage, of its fullest replica
  Bytes peak;                       ///< of the fullest stage
};

/// One micro-batch of a stage.
struct StageWork {
  Seconds forward, backward;
  bool operator==(const StageWork&) const = default;
};
/// A message between stages s and s+1.
struct LinkTime {
  Seconds activation;  ///< s to s+1
  Seconds gradient;    ///< s+1 to s
  bool operator==(const LinkTime&) const = default;
};
/// One replica's stage.
struct StageSpan {
  Seconds end;       ///< of its last operation; the pipeline begins at 0
  Seconds compute;   ///< forwards and backwards
  Seconds transfer;  ///< messages
  Seconds fill;      ///< idle before the first forward
};

/// Exact times of one replica's pipeline. Messages are synchronous, as blocking sends in stream
/// order make them: both stages stand still from the moment both are there until it has passed.
/// Between two stages the receiver's order holds: a gradient goes before the next activation.
/// `links` has one fewer than `work`. O(stages^2 micro_batches).
///
/// Example: two stages of 1 s forward and 2 s backward, 0.5 s a message, two micro-batches, 1F1B.
/// Stage 0: F0 0-1, send 1-1.5, F1 1.5-2.5. Stage 1: F0 1.5-2.5, B0 2.5-4.5. Gradient 0 4.5-5,
/// activation 1 5-5.5. Stage 0: B0 5.5-7.5; stage 1: F1 5.5-6.5, B1 6.5-8.5. Gradient 1 8.5-9.
/// Stage 0: B1 9-11.
std::vector<StageSpan> run_pipeline(const std::vector<StageWork>& work,
                                    const std::vector<LinkTime>& links, std::int64_t micro_batches,
                                    PipelineSchedule schedule);

/// Step time and memory of a plan.
/// Time: run_pipeline of each replica with the profile's layer times (which hold what tensor
/// parallelism exchanges) and each group's whole output as a message of each member; then the
/// exchange of tied weights between the two stages that hold them, if two; then a ring all-reduce
/// of each stage's gradients over its replicas, 2 (n-1)/n bytes / rate, not overlapped; then the
/// update.
/// Memory: see StageMemory.
/// Replicas that are alike are run once: O(stages^2 micro_batches) for each kind of them, and what
/// the profile's look-up takes for each pair of device kind and degree.
/// Usage error (cost.pipeline) for a plan that does not cover the layers, has unequal replicas or
/// needs a rate that the network lacks; cost.profile for times or bytes that the profile lacks.
Result<PipelineStep> estimate_pipeline_step(const PipelinePlan& plan, const LayerProfile& profile,
                                            const StageNetwork& network,
                                            const PipelineConstants& constants = {});

}  // namespace motley::cost
