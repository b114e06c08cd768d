#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "motley/cost/layers/layer_profile.h"
#include "motley/cost/layers/pipeline_plan.h"
#include "motley/cost/layers/stage_network.h"

namespace motley::cost {

/// Files in the form of Sailor (Strati et al., SOSP 2025). Errors "NAME: key 8.4.3: found ...,
/// wanted ..." (usage, import.sailor). verify_layer_profile checks the numbers.

/// Returns the planning kind (cluster/kinds.h) of Sailor's name: "GH-96" is gh200-96g; other names
/// are unchanged. All readers below translate this way.
std::string sailor_kind(std::string_view name);

/// Adds the times of one device kind (Sailor's name): micro-batch -> tensor parallelism -> layer ->
/// [forward s, backward s, update s]. Layers are numbered from 0 without a hole.
Result<void> add_sailor_times(std::string_view text, const std::string& name,
                              const std::string& kind, LayerProfile& profile);

/// Adds the bytes of `profile.model`: model -> tensor parallelism -> layer -> params_floats,
/// params_bytes, act_output_bytes, act_mem_bytes, the last two per sample. Training state counts
/// weights, gradients and the two moments of Adam, all in the weights' width: 4 params_bytes.
Result<void> add_sailor_sizes(std::string_view text, const std::string& name,
                              LayerProfile& profile);

/// Parses network fits of uniform hosts: "inter" and "intra" -> kind -> devices -> [[three
/// coefficients, highest power first], peak bytes/s] (see RateCurve).
Result<StageNetwork> parse_sailor_network(std::string_view text, const std::string& name);

/// Adds the fits between kinds: zone -> kind -> devices -> zone -> kind -> devices -> fit. Takes
/// those in `zone` with equal numbers of devices; for equal kinds only if missing.
Result<void> add_sailor_pairs(std::string_view text, const std::string& name,
                              const std::string& zone, StageNetwork& network);

/// A plan and, if it ran, its measurements.
struct SailorPlan {
  PipelinePlan plan;
  std::optional<Seconds> step;
  std::optional<Bytes> peak;  ///< most bytes used on any device, in total
};

/// Parses one pipeline of "pipeline_list": layers_per_stage, tmp_per_stage ([[kind, devices of a
/// host, zone]], tensor parallelism; by stage, replica); mbs, gbs; real (s), max_mem. Every replica
/// runs ceil(gbs / (mbs replicas)) micro-batches, 1F1B.
Result<SailorPlan> parse_sailor_plan(std::string_view text, const std::string& name);

}  // namespace motley::cost
