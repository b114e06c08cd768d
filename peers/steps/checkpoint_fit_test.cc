#include "peers/steps/checkpoint_fit.h"

#include <gmock/gmock.h>

namespace motley::peers {
namespace {

constexpr CheckpointTime kModel{Seconds(3), Seconds(20e-9), Seconds(200e-9)};

TEST(CheckpointFit, FitFindsWhatMadeTheSamples) {
  std::vector<CheckpointSample> samples;
  for (const auto& [weights, graph] : {std::pair{5, 1}, {200, 4}, {50, 5}, {20, 2}}) {
    const CheckpointSize size{Bytes(weights * 1'000'000), Bytes(graph * 1'000'000)};
    samples.push_back({size, estimate_checkpoint(kModel, size)});
  }
  const auto fit = fit_checkpoint(samples);
  ASSERT_TRUE(fit.has_value());
  EXPECT_NEAR(fit->model.fixed.value, 3, 1e-9);
  EXPECT_NEAR(fit->model.per_weight_byte.value, 20e-9, 1e-15);
  EXPECT_NEAR(fit->model.per_graph_byte.value, 200e-9, 1e-15);
  EXPECT_DOUBLE_EQ(fit->drag(-1), 1.0);
}

TEST(CheckpointFit, FitRefusesATimeOfZero) {
  const auto fit = fit_checkpoint({{{Bytes(1), Bytes(1)}, Seconds(0)}});
  ASSERT_FALSE(fit.has_value());
  EXPECT_EQ(fit.error().message, "row 0: 3 terms, wanted 3; target 0, wanted more than 0");
}

}  // namespace
}  // namespace motley::peers
