#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace motley::cost {

/// Devices that compute one stage of one replica together.
struct StageGroup {
  std::string kind;
  int tensor_parallel = 1;
  bool operator==(const StageGroup&) const = default;
};

/// Layers [first, end), with one group per replica.
struct PipelineStage {
  std::size_t first = 0, end = 0;
  std::vector<StageGroup> replicas;
  bool operator==(const PipelineStage&) const = default;
};

/// A plan as other tools have it: stages cover the layers in order, all with the same replicas and
/// micro-batches, 1F1B. Devices are numbered by stage, then replica, and fill hosts of their kind.
struct PipelinePlan {
  std::vector<PipelineStage> stages;
  std::int64_t micro_batch = 1;    ///< samples
  std::int64_t micro_batches = 1;  ///< per replica and step
  bool operator==(const PipelinePlan&) const = default;
};

}  // namespace motley::cost
