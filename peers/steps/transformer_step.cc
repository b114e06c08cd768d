#include "peers/steps/transformer_step.h"

#include <fmt/format.h>

#include "peers/steps/pipeline_span.h"

namespace motley::peers {
namespace {

constexpr double kElementBytes = 2;
constexpr std::int64_t kVocabularyBlock = 128;
constexpr double kAllReducesForward = 2;
constexpr double kLogitBytes = 40;  // cast to 4 bytes, max, exp, sum, scale; and their gradients
constexpr double kHeadPasses = 4;   // over the activations: layer norm, forward and backward
constexpr double kEmbeddingPasses = 3;  // over the activations: look-up, dropout, gradient
constexpr double kTablePasses = 3;      // over the table's gradient: zero it, read, add

double to_double(std::int64_t value) { return static_cast<double>(value); }

tl::unexpected<Error> job_error(const std::string& message) {
  return usage_error("cost.transformer", message);
}

Result<void> verify_divides(const char* what, std::int64_t value, const char* by,
                            std::int64_t divisor) {
  if (value % divisor == 0) return {};
  return job_error(fmt::format("{} {} does not divide by {} {}", what, value, by, divisor));
}

/// Returns the LM head's columns on one tensor rank.
std::int64_t local_vocabulary(std::int64_t vocabulary, std::int64_t tensor) {
  if (tensor == 1) return vocabulary;
  const std::int64_t block = kVocabularyBlock * tensor;
  return (vocabulary + block - 1) / block * kVocabularyBlock;
}

Result<Seconds> all_reduce_time(const CollectiveCurves& curves, std::int64_t ranks, double bytes) {
  if (ranks == 1) return Seconds(0);
  const auto curve = curves.find(static_cast<int>(ranks));
  if (curve == curves.end())
    return job_error(fmt::format("no measured all-reduce among {} ranks", ranks));
  return curve->second.time(bytes);
}

Seconds sum_of(const std::vector<GpuKernel>& kernels, const KernelRates& rates) {
  Seconds sum;
  for (const GpuKernel& kernel : kernels) sum += kernel_time(kernel, rates);
  return sum;
}

/// Lists a layer's kernels, each operator with its backward.
class LayerBuilder {
 public:
  explicit LayerBuilder(const TransformerShape& shape)
      : s_(shape),
        tokens_(shape.micro_batch * shape.sequence),
        activation_(kElementBytes * to_double(tokens_) * to_double(shape.hidden)),
        local_activation_(activation_ / to_double(shape.tensor)),
        heads_(shape.micro_batch * shape.heads / shape.tensor),
        scores_(kElementBytes * to_double(heads_) * to_double(shape.sequence * shape.sequence)) {}

  LayerKernels build() {
    attention();
    mlp();
    return std::move(kernels_);
  }

 private:
  void attention() {
    const std::int64_t head = s_.hidden / s_.heads;
    norm();
    product(tokens_, 3 * s_.hidden / s_.tensor, s_.hidden);
    element(6 * local_activation_, 6 * local_activation_);  // bias, split into heads
    product(s_.sequence, s_.sequence, head, heads_);
    element(2 * scores_, 3 * scores_);      // mask and softmax
    element(2.5 * scores_, 2.5 * scores_);  // dropout with a mask of 1 byte
    product(s_.sequence, head, s_.sequence, heads_);
    element(2 * local_activation_, 2 * local_activation_);  // join heads
    product(tokens_, s_.hidden, s_.hidden / s_.tensor);
    residual();
  }
  void mlp() {
    norm();
    product(tokens_, 4 * s_.hidden / s_.tensor, s_.hidden);
    element(8 * local_activation_, 6 * local_activation_, 6 * local_activation_);  // bias, GELU
    product(tokens_, s_.hidden, 4 * s_.hidden / s_.tensor);
    residual();
  }

  void norm() { element(2 * activation_, 2 * activation_, 2 * activation_); }
  void residual() {  // bias, dropout, add
    element(3.5 * activation_, 1.25 * activation_, 1.25 * activation_);
  }

  void product(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch = 1) {
    kernels_.forward.push_back(gemm(m, n, k, batch));
    kernels_.backward.push_back(gemm(m, k, n, batch));
    kernels_.backward.push_back(gemm(k, n, m, batch));
  }
  template <typename... Backward>
  void element(double forward, Backward... backward) {
    kernels_.forward.push_back(element_wise(forward));
    (kernels_.backward.push_back(element_wise(backward)), ...);
  }

  const TransformerShape& s_;
  std::int64_t tokens_;
  double activation_, local_activation_;  // bytes
  std::int64_t heads_;                    // of all samples, on this rank
  double scores_;                         // bytes
  LayerKernels kernels_;
};

}  // namespace

Result<void> verify_job(const TransformerJob& job) {
  const std::pair<const char*, std::int64_t> numbers[] = {{"layers", job.layers},
                                                          {"hidden size", job.hidden},
                                                          {"heads", job.heads},
                                                          {"sequence", job.sequence},
                                                          {"vocabulary", job.vocabulary},
                                                          {"tensor ranks", job.tensor},
                                                          {"stages", job.pipeline},
                                                          {"replicas", job.data},
                                                          {"micro-batch", job.micro_batch},
                                                          {"global batch", job.global_batch}};
  for (const auto& [name, value] : numbers) {
    if (value <= 0) return job_error(fmt::format("{} is {}, wanted more than 0", name, value));
  }
  MOTLEY_RETURN_IF_ERROR(verify_divides("hidden size", job.hidden, "heads", job.heads));
  MOTLEY_RETURN_IF_ERROR(verify_divides("heads", job.heads, "tensor ranks", job.tensor));
  MOTLEY_RETURN_IF_ERROR(verify_divides("layers", job.layers, "stages", job.pipeline));
  return verify_divides("global batch", job.global_batch, "replicas * micro-batch",
                        job.data * job.micro_batch);
}

TransformerShape shape_of(const TransformerJob& job) {
  return {job.hidden, job.heads,       job.sequence,         job.vocabulary,
          job.tensor, job.micro_batch, job.recomputes_layers};
}

LayerKernels build_layer_kernels(const TransformerShape& shape) {
  return LayerBuilder(shape).build();
}

Result<ShapeTimes> estimate_shape(const TransformerShape& shape,
                                  const TransformerConstants& constants,
                                  const CollectiveCurves& all_reduce) {
  const double tokens = to_double(shape.micro_batch * shape.sequence);
  const double activation = kElementBytes * tokens * to_double(shape.hidden);
  const std::int64_t columns = local_vocabulary(shape.vocabulary, shape.tensor);
  MOTLEY_ASSIGN(const Seconds whole, all_reduce_time(all_reduce, shape.tensor, activation));
  MOTLEY_ASSIGN(const Seconds token, all_reduce_time(all_reduce, shape.tensor, 4 * tokens));

  const LayerKernels layer = build_layer_kernels(shape);
  ShapeTimes times;
  times.layer_forward = sum_of(layer.forward, constants.kernels) + kAllReducesForward * whole;
  times.layer_backward = sum_of(layer.backward, constants.kernels) + kAllReducesForward * whole;
  if (shape.recomputes_layers) times.layer_backward += times.layer_forward;

  // Large enough that launches do not matter; the constants contain the host's cost.
  KernelRates rates = constants.kernels;
  rates.launch = Seconds(0);
  const GpuKernel logits = {Flops(2 * tokens * to_double(columns) * to_double(shape.hidden)), 0,
                            columns % 8 == 0};
  times.head = constants.head + 3 * kernel_time(logits, rates) + whole + 3 * token +
               kernel_time(element_wise(kLogitBytes * tokens * to_double(columns)), rates) +
               kernel_time(element_wise(2 * kHeadPasses * activation), rates);
  const double table = kElementBytes * to_double(columns) * to_double(shape.hidden);
  times.embedding = constants.embedding + whole +
                    kernel_time(element_wise(2 * kEmbeddingPasses * activation), rates) +
                    kernel_time(element_wise(kTablePasses * table), rates);
  return times;
}

double parameters_of_last_stage(const TransformerJob& job) {
  const double hidden = to_double(job.hidden), tensor = to_double(job.tensor);
  // Four h x h for attention, eight for the MLP; 13 h for biases and layer norms.
  const double layer = (12 * hidden * hidden + 13 * hidden) / tensor;
  const double head = to_double(local_vocabulary(job.vocabulary, job.tensor)) * hidden;
  const double positions = job.pipeline == 1 ? to_double(job.sequence) * hidden : 0;
  return layer * to_double(job.layers / job.pipeline) + head + positions;
}

Result<TransformerStep> estimate_step(const TransformerJob& job, const ShapeTimes& times,
                                      const TransformerConstants& constants,
                                      const CollectiveCurves& all_reduce) {
  const double layers = to_double(job.layers / job.pipeline);
  std::vector<MicroBatchTimes> stages(
      static_cast<std::size_t>(job.pipeline),
      MicroBatchTimes{layers * times.layer_forward, layers * times.layer_backward});
  // Forward is a third of the work of matrix products.
  stages.front().forward += times.embedding / 3;
  stages.front().backward += times.embedding * (2.0 / 3);
  stages.back().forward += times.head / 3;
  stages.back().backward += times.head * (2.0 / 3);
  const double message =
      kElementBytes * to_double(job.micro_batch * job.sequence) * to_double(job.hidden);
  const double parameters = parameters_of_last_stage(job);

  TransformerStep step;
  step.pipeline =
      pipeline_span(stages, Seconds(message / constants.between.value), job.micro_batches());
  MOTLEY_ASSIGN(step.exchange, all_reduce_time(all_reduce, job.data, kElementBytes * parameters));
  step.update = Seconds(constants.update_bytes * parameters / constants.kernels.memory.value);
  step.step = constants.step;
  step.total = step.pipeline + step.exchange + step.update + step.step;
  return step;
}

}  // namespace motley::peers
