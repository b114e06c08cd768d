#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"

namespace motley::cost {

/// Times of one layer and micro-batch on each member of a tensor-parallel group.
struct LayerTime {
  Seconds forward, backward;
  Seconds update;  ///< optimizer step of the layer's weights
  bool operator==(const LayerTime&) const = default;
};

/// Memory of a layer on each member of a tensor-parallel group.
struct LayerSize {
  std::int64_t weights = 0;  ///< elements, a lower bound; gives a lower bound of the work
  Bytes gradients;           ///< exchanged by replicas
  Bytes states;              ///< weights, gradients and optimizer state
  Bytes kept;                ///< per sample: activations kept from forward to backward
  Bytes output;              ///< per sample: input of the next layer; 0 = unknown
  bool operator==(const LayerSize&) const = default;
};

/// Times of one device kind at one degree of tensor parallelism: micro-batch (samples) -> layers.
using LayerTable = std::map<std::int64_t, std::vector<LayerTime>>;

/// A model profiled layer by layer on some device kinds: made by importers (cost/layers/sailor.h,
/// cost/layers/metis.h), used to price stages (search/stages/costs/layer_stage_costs.h).
struct LayerProfile {
  std::string model;
  std::int64_t tokens = 0;  ///< per sample; 0 = unknown
  /// Two layers that share their weights (embedding and head); one stage holds them once.
  std::optional<std::pair<std::size_t, std::size_t>> tied;
  std::map<std::string, std::map<int, LayerTable>> times;  ///< kind -> tensor parallelism
  std::map<int, std::vector<LayerSize>> sizes;             ///< tensor parallelism -> layers
  bool operator==(const LayerProfile&) const = default;
};

/// Returns the times of all layers at any micro-batch. At profiled ones it is the minimum measured
/// there and at larger ones: neighbours, warm-up and a busy host only lengthen a measurement, and
/// less work cannot take longer. Linear in between; constant below the smallest; beyond the largest
/// with the last segment's slope, at most proportional, up to twice the largest. Larger ones are an
/// error, as are a kind or a degree that was not profiled (cost.profile; lists what exists).
///
/// Example: measured 5, 3, 6 ms at 1, 2, 4 samples: 3 ms at 1, 4.5 ms at 3, 9 ms at 6.
Result<std::vector<LayerTime>> layer_times(const LayerProfile& profile, const std::string& kind,
                                           int tensor_parallel, std::int64_t micro_batch);
Result<std::vector<LayerSize>> layer_sizes(const LayerProfile& profile, int tensor_parallel);

/// Usage error (cost.layers) if a layer's output is unknown, which messages between stages need.
Result<void> check_outputs(const LayerProfile& profile);

/// The peak of a device kind in the profile's arithmetic.
struct PeakRate {
  std::string kind;
  double flops_per_second = 0;  ///< > 0
};

/// Returns the fastest format of 16 bits or more of each planning kind (cluster/kinds.h).
std::vector<PeakRate> built_in_peaks();

/// Reports the first impossible value by its key ("m on GH-96, tp 4, micro-batch 8, layer 3"):
/// - no times, a kind that is not in `peaks`, tables with unequal numbers of layers, a missing
///   power of two between two micro-batches, no bytes for any degree of a kind;
/// - a time that is not above zero. Exceptions (say_untimed): updates that were never timed; the
///   first layer's backward pass, if its forward pass takes at most a tenth of the others' passes;
/// - forward and backward of a layer above the device's peak (units too small), or a whole model
///   below 1/2000 of the peak at its best (units too large);
/// - a larger micro-batch that takes less than a quarter of the time for a layer, or less than
///   three quarters for a model (rows exchanged; small measured layers were seen to fall by half).
/// Work is a lower bound: 6 operations per weight and token, without the first layer (a look-up).
Result<void> verify_layer_profile(const LayerProfile& profile, const std::vector<PeakRate>& peaks);

/// Returns a sentence per device kind for times that a verified profile lacks.
std::vector<std::string> say_untimed(const LayerProfile& profile);

}  // namespace motley::cost
