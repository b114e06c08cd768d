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

/// One layer, one micro-batch, on each member of a tensor-parallel group.
struct LayerTime {
  Seconds forward, backward;
  Seconds update;  ///< optimizer step of the layer's weights
  bool operator==(const LayerTime&) const = default;
};

/// What a layer holds on each member of a tensor-parallel group.
struct LayerSize {
  std::int64_t weights = 0;  ///< elements, at least: what bounds the work from below
  Bytes gradients;           ///< what replicas exchange
  Bytes states;              ///< weights, gradients and optimizer state
  Bytes kept;                ///< a sample: activations kept from forward to backward
  Bytes output;              ///< a sample: what the next layer is given; 0 = not known
  bool operator==(const LayerSize&) const = default;
};

/// Times of one device kind at one degree of tensor parallelism: micro-batch (samples) -> layers.
using LayerTable = std::map<std::int64_t, std::vector<LayerTime>>;

/// A model profiled layer by layer on some device kinds: what importers of other tools' profiles
/// give (cost/layers/sailor.h, cost/layers/metis.h), and what prices plans of
/// stages (search/stages/costs/layer_stage_costs.h).
struct LayerProfile {
  std::string model;
  std::int64_t tokens = 0;  ///< a sample; 0 = not known
  /// Two layers that share their weights (embedding and head); in one stage they are held once.
  std::optional<std::pair<std::size_t, std::size_t>> tied;
  std::map<std::string, std::map<int, LayerTable>> times;  ///< kind -> tensor parallelism
  std::map<int, std::vector<LayerSize>> sizes;             ///< tensor parallelism -> layers
  bool operator==(const LayerProfile&) const = default;
};

/// Times of all layers at any micro-batch. At profiled ones the least of what was measured there
/// and at larger ones: neighbours, warm-up and a busy host only lengthen a measurement, and less
/// work cannot take longer. Linear in between; below the smallest constant; beyond the largest with
/// the last segment's slope, at most in proportion, up to twice the largest: further is an error,
/// as are a kind or a degree that was not profiled (cost.profile; names what there is).
///
/// Example: measured 5, 3, 6 ms at 1, 2, 4 samples: 3 ms at 1, 4.5 ms at 3, 9 ms at 6.
Result<std::vector<LayerTime>> layer_times(const LayerProfile& profile, const std::string& kind,
                                           int tensor_parallel, std::int64_t micro_batch);
Result<std::vector<LayerSize>> layer_sizes(const LayerProfile& profile, int tensor_parallel);

/// Usage error (cost.layers) where nobody knows what a layer gives to the next, which a message
/// between stages needs.
Result<void> check_outputs(const LayerProfile& profile);

/// What a device kind can do at most, in the profile's arithmetic.
struct PeakRate {
  std::string kind;
  double flops_per_second = 0;  ///< > 0
};

/// The fastest floating-point format of 16 bits or more of each planning kind (cluster/kinds.h).
std::vector<PeakRate> built_in_peaks();

/// The first thing that cannot be true, named by its key ("OPT-350 on GH-96, tp 4, micro-batch 8,
/// layer 3"): no times, a kind that is not in `peaks`, tables with unequal numbers of layers, a
/// missing power of two between two micro-batches, a time that is not above zero (but no update was
/// timed at all, and the first layer's backward pass may be too brief to be seen where its forward
/// pass takes at most a tenth of the others' passes: say_untimed), forward and
/// backward of a layer above the device's peak (units too small), a whole model below 1/2000 of the
/// peak at its best (units too large), a layer's time that falls to less than a quarter or a
/// model's to less than three quarters as the micro-batch grows (rows exchanged; small measured
/// layers were seen to fall by half), no bytes for any degree of a kind. Work is counted from
/// below: 6 operations a weight and token for every layer but the first, which looks up.
Result<void> verify_layer_profile(const LayerProfile& profile, const std::vector<PeakRate>& peaks);

/// What a verified profile has no times of, a sentence for each kind of device.
std::vector<std::string> say_untimed(const LayerProfile& profile);

}  // namespace motley::cost
