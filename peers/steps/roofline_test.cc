#include "peers/steps/roofline.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

namespace motley::peers {
namespace {

constexpr DeviceRates kSlow{4e12, BytesPerSecond(300e9)};
constexpr DeviceRates kFast{8e12, BytesPerSecond(900e9)};

TEST(Roofline, AddsStartUpArithmeticAndTraffic) {
  const Roofline model{Seconds(0.010), Seconds(0.001), 2.0, 1.5};
  const StepWork work{5, Flops(1e12), Bytes(60'000'000'000)};
  // 0.010 + 5 * 0.001 + 2 * (1 / 4) + 1.5 * (60 / 300).
  EXPECT_NEAR(estimate_time(model, work, kSlow).value, 0.815, 1e-12);
  // Half the start-up: 0.0075 + 0.8.
  DeviceRates quick = kSlow;
  quick.launch_scale = 0.5;
  EXPECT_NEAR(estimate_time(model, work, quick).value, 0.8075, 1e-12);
}

std::vector<RooflineSample> samples_of(const Roofline& model) {
  const std::vector<StepWork> works = {{10, Flops(1e12), Bytes(5'000'000'000)},
                                       {40, Flops(2e12), Bytes(90'000'000'000)},
                                       {90, Flops(9e12), Bytes(20'000'000'000)},
                                       {30, Flops(4e12), Bytes(70'000'000'000)}};
  std::vector<RooflineSample> samples;
  for (const StepWork& work : works)
    for (const DeviceRates& device : {kSlow, kFast})
      samples.push_back({work, device, estimate_time(model, work, device)});
  return samples;
}

TEST(Roofline, FitFindsTheConstantsThatMadeTheSamples) {
  const Roofline model{Seconds(0.02), Seconds(0.003), 1.7, 2.5};
  const auto fit = fit_roofline(samples_of(model));
  ASSERT_TRUE(fit.has_value());
  EXPECT_NEAR(fit->model.fixed.value, 0.02, 1e-9);
  EXPECT_NEAR(fit->model.launch.value, 0.003, 1e-9);
  EXPECT_NEAR(fit->model.flops_share, 1.7, 1e-6);
  EXPECT_NEAR(fit->model.bytes_share, 2.5, 1e-6);
  EXPECT_DOUBLE_EQ(fit->drag(0), 1.0);
}

TEST(Roofline, FitSeparatesSlowHosts) {
  // The same eight steps on two hosts, the second 1.3 times slower. For any constants the ratios of
  // measured to predicted differ by 1.3 between the hosts. Each drag is the geometric mean of eight
  // ratios and a 1: the drags differ by 1.3^(8/9) = 1.26265.
  std::vector<RooflineSample> samples = samples_of({Seconds(0.02), Seconds(0.003), 1.7, 2.5});
  for (std::size_t i = 0; i < 8; ++i) {
    samples[i].host = 0;
    samples.push_back(samples[i]);
    samples.back().host = 1;
    samples.back().measured = samples[i].measured * 1.3;
  }
  const auto fit = fit_roofline(samples);
  ASSERT_TRUE(fit.has_value());
  EXPECT_NEAR(fit->drag(1) / fit->drag(0), 1.26265, 1e-5);
}

TEST(Roofline, FitRefusesADeviceWithoutRates) {
  const auto fit = fit_roofline({{{1, Flops(1), Bytes(1)}, {0, BytesPerSecond(1)}, Seconds(1)}});
  ASSERT_FALSE(fit.has_value());
  EXPECT_EQ(fit.error().message,
            "sample 0: 0 flops/s, 1 bytes/s, launches scaled by 1; wanted all more than 0");
}

TEST(Roofline, TilesPadChannels) {
  EXPECT_DOUBLE_EQ(tile_padding(64, 32), 1.0);
  EXPECT_DOUBLE_EQ(tile_padding(48, 32), 64.0 / 48);
  EXPECT_DOUBLE_EQ(tile_padding(1, 32), 32.0);
}

TEST(Roofline, TransferScalesEachPartByItsRatio) {
  const Roofline model{Seconds(0), Seconds(0.01), 1.0, 0.0};
  const StepWork work{5, Flops(0.8e12), Bytes(0)};
  // 0.05 + 0.2 is 1 : 4. Measured 0.5: 0.1 of launches and 0.4 of flops, halved: 0.3.
  EXPECT_NEAR(carried_time(Seconds(0.5), work, model, kSlow, kFast).value, 0.3, 1e-12);
}

TEST(Roofline, TransferKeepsWhatTheModelDoesNotPrice) {
  EXPECT_DOUBLE_EQ(carried_time(Seconds(0.5), StepWork{}, Roofline{}, kSlow, kFast).value, 0.5);
}

RC_GTEST_PROP(Roofline, TransferThereAndBackIsTheSame, ()) {
  const Roofline model{Seconds(0.01), Seconds(0.001), 1.5, 2.0};
  const StepWork work{static_cast<double>(*rc::gen::inRange(0, 100)),
                      Flops(*rc::gen::inRange(0, 1'000'000) * 1e6),
                      Bytes(*rc::gen::inRange(0, 1'000'000'000))};
  const Seconds there = carried_time(Seconds(0.25), work, model, kSlow, kFast);
  RC_ASSERT(std::abs(carried_time(there, work, model, kFast, kSlow).value - 0.25) < 1e-12);
}

}  // namespace
}  // namespace motley::peers
