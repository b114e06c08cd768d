#include "peers/steps/transformer_step.h"

#include <gtest/gtest.h>

namespace motley::peers {
namespace {

TransformerJob small_job() {
  return {.layers = 2,
          .hidden = 64,
          .heads = 4,
          .sequence = 32,
          .vocabulary = 1000,
          .micro_batch = 1,
          .global_batch = 3};
}

CollectiveCurves flat_curves(double seconds) {
  CollectiveCurves curves;
  for (const int ranks : {2, 4})
    curves.emplace(ranks, *CollectiveCurve::build({{Bytes(1), Seconds(seconds)},
                                                   {Bytes(1'000'000'000), Seconds(seconds)}}));
  return curves;
}

/// Everything is free except what a test sets.
TransformerConstants free_constants() {
  TransformerConstants constants;
  constants.kernels = {Seconds(0), 1e30, BytesPerSecond(1e30), 1};
  constants.between = BytesPerSecond(1e30);
  return constants;
}

std::string message_of(const TransformerJob& job) {
  const auto verified = verify_job(job);
  return verified ? "no error" : verified.error().message;
}

double flops_of(const std::vector<GpuKernel>& kernels) {
  double sum = 0;
  for (const GpuKernel& kernel : kernels) sum += kernel.flops.value;
  return sum;
}

TEST(TransformerStep, RefusesJobsThatDoNotDivide) {
  EXPECT_EQ(message_of(small_job()), "no error");
  TransformerJob job = small_job();
  job.heads = 0;
  EXPECT_EQ(message_of(job), "heads is 0, wanted more than 0");
  job.heads = 5;
  EXPECT_EQ(message_of(job), "hidden size 64 does not divide by heads 5");
  job = small_job();
  job.tensor = 8;
  EXPECT_EQ(message_of(job), "heads 4 does not divide by tensor ranks 8");
  job = small_job();
  job.pipeline = 3;
  EXPECT_EQ(message_of(job), "layers 2 does not divide by stages 3");
  job = small_job();
  job.data = 2;
  EXPECT_EQ(message_of(job), "global batch 3 does not divide by replicas * micro-batch 2");
}

TEST(TransformerStep, CountsALayersFlops) {
  // 24 tokens h^2 for products with weights and 4 sequence tokens h for attention, for 2 samples of
  // 32 tokens, h = 64, over 2 tensor ranks; backward twice that.
  TransformerJob job = small_job();
  job.tensor = 2;
  job.micro_batch = 2;
  const LayerKernels kernels = build_layer_kernels(shape_of(job));
  const double forward = (24.0 * 64 * 64 * 64 + 4.0 * 32 * 64 * 64) / 2;
  EXPECT_DOUBLE_EQ(flops_of(kernels.forward), forward);
  EXPECT_DOUBLE_EQ(flops_of(kernels.backward), 2 * forward);
  EXPECT_EQ(kernels.forward.size(), 15u);   // 6 products and 9 others
  EXPECT_EQ(kernels.backward.size(), 26u);  // 12 products and 14 others
}

TEST(TransformerStep, SmallLayersCostTheirLaunches) {
  // 15 kernels forward; backward 15 again and 26 more; 1 ms each.
  TransformerConstants constants = free_constants();
  constants.kernels.launch = Seconds(1e-3);
  constants.head = Seconds(7);
  constants.embedding = Seconds(5);
  const auto times = estimate_shape(shape_of(small_job()), constants, {});
  ASSERT_TRUE(times);
  EXPECT_NEAR(times->layer_forward.value, 15e-3, 1e-12);
  EXPECT_NEAR(times->layer_backward.value, 41e-3, 1e-12);
  EXPECT_NEAR(times->head.value, 7, 1e-12);
  EXPECT_NEAR(times->embedding.value, 5, 1e-12);

  TransformerJob kept = small_job();
  kept.recomputes_layers = false;
  EXPECT_NEAR(estimate_shape(shape_of(kept), constants, {})->layer_backward.value, 26e-3, 1e-12);
}

TEST(TransformerStep, TensorRanksReduceTwiceAPass) {
  // 1 s per all-reduce: forward 2, backward with recomputation 4, head 4, embedding 1.
  TransformerJob job = small_job();
  job.tensor = 2;
  const auto times = estimate_shape(shape_of(job), free_constants(), flat_curves(1));
  ASSERT_TRUE(times) << times.error().message;
  EXPECT_NEAR(times->layer_forward.value, 2, 1e-9);
  EXPECT_NEAR(times->layer_backward.value, 4, 1e-9);
  EXPECT_NEAR(times->head.value, 4, 1e-9);
  EXPECT_NEAR(times->embedding.value, 1, 1e-9);
  EXPECT_EQ(estimate_shape(shape_of(job), free_constants(), {}).error().message,
            "no measured all-reduce among 2 ranks");
}

TEST(TransformerStep, AVocabularyThatIsNotPaddedIsUnaligned) {
  // tokens 32, h 64: 3 * 2 * 32 * 64 flops per column at 1e6 flops/s, 12.288 ms; 1001 columns on
  // one rank run at half the rate. On two ranks 1001 becomes 1024, 512 aligned columns each.
  TransformerJob job = small_job();
  job.vocabulary = 1001;
  TransformerConstants constants = free_constants();
  constants.kernels.flops_per_second = 1e6;
  constants.kernels.unaligned_share = 0.5;
  EXPECT_NEAR(estimate_shape(shape_of(job), constants, {})->head.value, 1001 * 12.288e-3 * 2, 1e-9);
  job.tensor = 2;
  EXPECT_NEAR(estimate_shape(shape_of(job), constants, flat_curves(1e-12))->head.value,
              512 * 12.288e-3, 1e-9);
}

TEST(TransformerStep, CountsParametersOfTheLastStage) {
  // Layer: 12 * 64^2 + 13 * 64 = 49,984. Head 1000 * 64, positions 32 * 64.
  TransformerJob job = small_job();
  EXPECT_EQ(parameters_of_last_stage(job), 2 * 49984 + 64000 + 2048);
  job.pipeline = 2;
  EXPECT_EQ(parameters_of_last_stage(job), 49984 + 64000);
  job.tensor = 2;  // 1000 columns become 1024, 512 per rank
  EXPECT_EQ(parameters_of_last_stage(job), 49984 / 2 + 512 * 64);
}

TEST(TransformerStep, AddsPipelineExchangeUpdateAndHost) {
  const ShapeTimes times = {Seconds(1e-3), Seconds(2e-3), Seconds(1e-3), Seconds(1e-3)};
  TransformerConstants constants = free_constants();
  constants.step = Seconds(4e-3);
  // The header's example: 3 (2 * 3 + 2) + 4 ms.
  auto step = estimate_step(small_job(), times, constants, {});
  ASSERT_TRUE(step);
  EXPECT_NEAR(step->total.value, 28e-3, 1e-12);

  // Two replicas of 6: an all-reduce of 5 ms. 166,016 parameters of 10 bytes at 1 GB/s: 1.66016 ms.
  TransformerJob job = small_job();
  job.data = 2;
  job.global_batch = 6;
  constants.kernels.memory = BytesPerSecond(1e9);
  constants.update_bytes = 10;
  step = estimate_step(job, times, constants, flat_curves(5e-3));
  ASSERT_TRUE(step);
  EXPECT_NEAR(step->exchange.value, 5e-3, 1e-12);
  EXPECT_NEAR(step->update.value, 1.66016e-3, 1e-12);
  EXPECT_NEAR(step->total.value, 28e-3 + 5e-3 + 1.66016e-3, 1e-12);
}

TEST(TransformerStep, StagesOverlapAndExchangeActivations) {
  // Two stages of one layer, each 1 + 1/3 forward and 2 + 2/3 backward: 4 s. A message of 2 * 32 *
  // 64 = 4096 bytes at 4096 bytes/s: 1 s. One micro-batch: 4 + 4 + 2 = 10 s.
  const ShapeTimes times = {Seconds(1), Seconds(2), Seconds(1), Seconds(1)};
  TransformerJob job = small_job();
  job.pipeline = 2;
  job.global_batch = 1;
  TransformerConstants constants = free_constants();
  constants.between = BytesPerSecond(4096);
  EXPECT_NEAR(estimate_step(job, times, constants, {})->total.value, 10, 1e-9);
}

}  // namespace
}  // namespace motley::peers
