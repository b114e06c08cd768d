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

/// A GPT trained as by Megatron-LM (Narayanan et al., SC 2021): 2-byte weights and activations,
/// layers split over `tensor` ranks with an all-reduce after attention and one after the MLP, equal
/// pipeline stages under 1F1B, the LM head on the last stage, `data` replicas.
struct TransformerJob {
  std::int64_t layers = 0, hidden = 0, heads = 0, sequence = 0, vocabulary = 0;
  std::int64_t tensor = 1, pipeline = 1, data = 1;
  std::int64_t micro_batch = 1;   ///< samples
  std::int64_t global_batch = 0;  ///< samples per step
  bool recomputes_layers = true;  ///< backward repeats each layer's forward first
  bool operator==(const TransformerJob&) const = default;

  std::int64_t micro_batches() const { return global_batch / (data * micro_batch); }
};
/// Usage error (cost.transformer): numbers not > 0, or that do not divide: hidden by heads, heads
/// by tensor, layers by pipeline, global batch by data * micro-batch.
Result<void> verify_job(const TransformerJob& job);

/// What determines a micro-batch's times in a layer, the head and the embedding.
struct TransformerShape {
  std::int64_t hidden = 0, heads = 0, sequence = 0, vocabulary = 0, tensor = 1, micro_batch = 1;
  bool recomputes_layers = true;
  auto operator<=>(const TransformerShape&) const = default;
};
TransformerShape shape_of(const TransformerJob& job);

/// One layer's kernels on a tensor rank (README.md), without all-reduces and recomputation.
struct LayerKernels {
  std::vector<GpuKernel> forward, backward;
};
LayerKernels build_layer_kernels(const TransformerShape& shape);

/// Costs of jobs on one kind of device and its links; fitted (transformer_fit.h).
struct TransformerConstants {
  KernelRates kernels;
  Seconds head, embedding;  ///< host time per micro-batch beside their kernels
  BytesPerSecond between;   ///< of a message between stages
  double update_bytes = 0;  ///< moved by the optimizer per parameter
  Seconds step;             ///< other host time of a step
  bool operator==(const TransformerConstants&) const = default;
};

/// The times of a micro-batch on one tensor rank.
struct ShapeTimes {
  Seconds layer_forward, layer_backward;
  Seconds head;       ///< forward and backward, with loss
  Seconds embedding;  ///< forward and backward
  bool operator==(const ShapeTimes&) const = default;
};

/// Sums kernel_time and the all-reduces among `shape.tensor` ranks; `all_reduce` must have their
/// curve (cost.transformer). Head: three GEMMs of tokens x hidden x vocabulary, 40 bytes per logit,
/// one all-reduce of the activations and three of one number per token. Embedding: 6 bytes per
/// activation, three passes over the table's 2-byte gradient, one all-reduce.
Result<ShapeTimes> estimate_shape(const TransformerShape& shape,
                                  const TransformerConstants& constants,
                                  const CollectiveCurves& all_reduce);

/// The times of a step; `total` sums the other four.
struct TransformerStep {
  Seconds total;
  Seconds pipeline;  ///< first forward to last backward
  Seconds exchange;  ///< the largest stage's gradients among replicas, after the last backward
  Seconds update;    ///< of the largest stage
  Seconds step;      ///< host
};

/// Returns the time of a step whose micro-batches take `times`: pipeline_span of the stages, with
/// the embedding on the first and the head on the last; one all-reduce of 2 bytes per parameter of
/// the last stage among `job.data` replicas (none for 1; cost.transformer without a curve); update.
///
/// Example: 2 layers, 1 stage, 3 micro-batches of 1 + 2 ms per layer, head 1 ms, embedding 1 ms,
/// one replica, update and host 4 ms: 3 (2 * 3 + 2) + 4 = 28 ms.
Result<TransformerStep> estimate_step(const TransformerJob& job, const ShapeTimes& times,
                                      const TransformerConstants& constants,
                                      const CollectiveCurves& all_reduce);

/// Counts the parameters of one tensor rank of the last stage: its layers, the LM head (the
/// vocabulary padded to a multiple of 128 * tensor where split) and, on the only stage, positions.
double parameters_of_last_stage(const TransformerJob& job);

}  // namespace motley::peers
