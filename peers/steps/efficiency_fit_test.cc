#include "peers/steps/efficiency_fit.h"

#include <gtest/gtest.h>

#include <tuple>

namespace motley::peers {
namespace {

TEST(EfficiencyFit, FindsTheEfficiencies) {
  // launches 10 us + flops / 0.5 + bytes / 0.8.
  std::vector<KindSample> samples;
  for (const auto& [launches, flops, bytes] :
       {std::tuple{1, 1e-3, 0.0}, {2, 0.0, 1e-3}, {3, 2e-3, 1e-3}, {10, 0.0, 0.0}})
    samples.push_back(
        {flops, bytes, launches, Seconds(launches * 1e-5 + flops / 0.5 + bytes / 0.8)});
  const auto fit = fit_efficiency(samples);
  ASSERT_TRUE(fit);
  EXPECT_NEAR(fit->launch.value, 1e-5, 1e-11);
  EXPECT_NEAR(fit->flops, 0.5, 1e-6);
  EXPECT_NEAR(fit->bytes, 0.8, 1e-6);
}

}  // namespace
}  // namespace motley::peers
