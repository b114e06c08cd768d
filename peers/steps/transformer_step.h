#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "peers/steps/collective_curve.h"
#include "peers/steps/kernel_time.h"

namespace motley::peers {

/// A GPT trained as Megatron-LM does (Narayanan et al., SC 2021): 2-byte weights and activations,
/// layers split over `tensor` ranks with one all-reduce after attention and one after the MLP,
/// equal pipeline stages under 1F1B, the LM head on the last stage, `data` replicas.
struct TransformerJob {
  std::int64_t layers = 0, hidden = 0, heads = 0, sequence = 0, vocabulary = 0;
  std::int64_t tensor = 1, pipeline = 1, data = 1;
  std::int64_t micro_batch = 1;   ///< samples
  std::int64_t global_batch = 0;  ///< samples a step
  bool recomputes_layers = true;  ///< backward begins with each layer's forward again
  bool operator==(const TransformerJob&) const = default;

  std::int64_t micro_batches() const { return global_batch / (data * micro_batch); }
};
/// Usage error (cost.transformer) for numbers that are not > 0 or do not divide: hidden by heads,
/// heads by tensor, layers by pipeline, global batch by data * micro-batch.
Result<void> verify_job(const TransformerJob& job);

/// What the times of one micro-batch in a layer, the head and the embedding depend on.
struct TransformerShape {
  std::int64_t hidden = 0, heads = 0, sequence = 0, vocabulary = 0, tensor = 1, micro_batch = 1;
  bool recomputes_layers = true;
  auto operator<=>(const TransformerShape&) const = default;
};
TransformerShape shape_of(const TransformerJob& job);

/// Kernels of one layer on one tensor rank, README.md has the list; the all-reduces are not in
/// them. Backward is without the recomputed forward.
struct LayerKernels {
  std::vector<GpuKernel> forward, backward;
};
LayerKernels build_layer_kernels(const TransformerShape& shape);

/// What jobs of one kind cost on one kind of device and its links; fitted (transformer_fit.h).
struct TransformerConstants {
  KernelRates kernels;
  Seconds head, embedding;  ///< host time a micro-batch beside their kernels
  BytesPerSecond between;   ///< of a message between stages
  double update_bytes = 0;  ///< moved by the optimizer for each parameter
  Seconds step;             ///< host time of a step beside all else
  bool operator==(const TransformerConstants&) const = default;
};

/// One micro-batch on one tensor rank.
struct ShapeTimes {
  Seconds layer_forward, layer_backward;
  Seconds head;       ///< forward and backward, with loss
  Seconds embedding;  ///< forward and backward
  bool operator==(const ShapeTimes&) const = default;
};

/// Sums over kernel_time and the all-reduces among `shape.tensor` ranks, for which `all_reduce`
/// must have a curve (cost.transformer). Head: three GEMMs of tokens x hidden x vocabulary, 40
/// bytes a logit, one all-reduce of the activations and three of one number a token. Embedding: 6
/// bytes an activation, three passes over the table's 2-byte gradient, one all-reduce.
Result<ShapeTimes> estimate_shape(const TransformerShape& shape,
                                  const TransformerConstants& constants,
                                  const CollectiveCurves& all_reduce);

/// A step; `total` is the sum of the other four.
struct TransformerStep {
  Seconds total;
  Seconds pipeline;  ///< first forward to last backward
  Seconds exchange;  ///< gradients of the largest stage among replicas, after the last backward
  Seconds update;    ///< of the largest stage
  Seconds step;      ///< host
};

/// Time of a step whose micro-batches take `times`: pipeline_span of the stages, with the embedding
/// on the first and the head on the last; one all-reduce of 2 bytes a parameter of the last stage
/// among `job.data` replicas (one of 1 has none; cost.transformer without a curve); update.
///
/// Example: 2 layers, 1 stage, 3 micro-batches of 1 + 2 ms a layer, head 1 ms, embedding 1 ms, one
/// replica, update and host 4 ms: 3 (2 * 3 + 2) + 4 = 28 ms.
Result<TransformerStep> estimate_step(const TransformerJob& job, const ShapeTimes& times,
                                      const TransformerConstants& constants,
                                      const CollectiveCurves& all_reduce);

/// Parameters that one tensor rank of the last stage holds: its layers, the LM head (the vocabulary
/// padded to a multiple of 128 * tensor where it is split) and, on the only stage, positions.
double parameters_of_last_stage(const TransformerJob& job);

}  // namespace motley::peers
