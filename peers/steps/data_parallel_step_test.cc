#include "peers/steps/data_parallel_step.h"

#include <gmock/gmock.h>

namespace motley::peers {
namespace {

DataParallelStep model_of(double power) {
  return {{{8, Seconds(3)}, {16, Seconds(5)}}, Seconds(2), Seconds(1), power};
}

TEST(DataParallelStep, JoinsComputeAndExchangeByAPowerMean) {
  // Exchange 2 + log2(4) = 4 s. p = 2: sqrt(9 + 16); p = 1: 3 + 4; p large: the larger.
  EXPECT_NEAR(estimate_step(model_of(2), 8, 4).value, 5, 1e-12);
  EXPECT_NEAR(estimate_step(model_of(1), 8, 4).value, 7, 1e-12);
  EXPECT_NEAR(estimate_step(model_of(200), 8, 4).value, 4, 1e-9);
}

TEST(DataParallelStep, ComputeIsLinearInTheBatch) {
  // Slope 2 / 8 a sample: 12: 4 s; 20: 6 s; 4: 2 s. Exchange 2 s, p = 1.
  EXPECT_NEAR(estimate_step(model_of(1), 12, 1).value, 6, 1e-12);
  EXPECT_NEAR(estimate_step(model_of(1), 20, 1).value, 8, 1e-12);
  EXPECT_NEAR(estimate_step(model_of(1), 4, 1).value, 4, 1e-12);
  const DataParallelStep one_batch{{{8, Seconds(3)}}, Seconds(0), Seconds(0), 1};
  EXPECT_NEAR(estimate_step(one_batch, 16, 1).value, 6, 1e-12);
}

TEST(DataParallelStep, FitFindsWhatMadeTheSamples) {
  const DataParallelStep model = model_of(1.8);
  std::vector<DataParallelSample> samples = {
      {1, 1, 8, Seconds(3)}, {1, 1, 16, Seconds(5)}, {1, 4, 8, Seconds(99)}};
  for (const std::int64_t replicas : {2, 3, 4, 8, 16})
    for (const double batch : {8.0, 12.0, 16.0})
      samples.push_back({2, replicas, batch, estimate_step(model, batch, replicas)});
  const auto fit = fit_step(samples);
  ASSERT_TRUE(fit.has_value());
  EXPECT_NEAR(fit->base.value, 2, 1e-3);
  EXPECT_NEAR(fit->doubling.value, 1, 1e-3);
  EXPECT_NEAR(fit->power, 1.8, 1e-3);
}

TEST(DataParallelStep, FitSaysWhatIsMissing) {
  EXPECT_EQ(fit_step({{2, 2, 8, Seconds(1)}}).error().message,
            "no sample of one replica, wanted some for the compute times");
  EXPECT_EQ(fit_step({{1, 1, 8, Seconds(1)}, {2, 2, 8, Seconds(1)}}).error().message,
            "1 samples of more than one host, wanted three or more");
}

}  // namespace
}  // namespace motley::peers
