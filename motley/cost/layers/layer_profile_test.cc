#include "motley/cost/layers/layer_profile.h"

#include <gmock/gmock.h>

namespace motley::cost {
namespace {

using ::testing::DoubleNear;

LayerTime ms(double forward, double backward, double update = 1) {
  return {Seconds(forward * 1e-3), Seconds(backward * 1e-3), Seconds(update * 1e-3)};
}

/// A look-up and a layer of 10^6 weights, 1000 tokens per sample: 6 * 10^9 operations per sample.
LayerProfile two_layers() {
  LayerProfile profile;
  profile.model = "m";
  profile.tokens = 1000;
  profile.times["g"][1] = {{1, {ms(1, 1), ms(2, 4)}}, {2, {ms(1, 1), ms(4, 8)}}};
  profile.sizes[1] = {LayerSize{}, LayerSize{.weights = 1'000'000}};
  return profile;
}

// 2 Tflop/s: the layer reaches 6e9 / 6e-3 = 1 Tflop/s.
const std::vector<PeakRate> kPeaks = {{"g", 2e12}};

std::string message(const LayerProfile& profile) {
  const auto verified = verify_layer_profile(profile, kPeaks);
  return verified ? "" : verified.error().message;
}

double forward_ms(const LayerProfile& profile, std::int64_t batch) {
  const auto times = layer_times(profile, "g", 1, batch);
  EXPECT_TRUE(times) << times.error().message;
  return times ? 1e3 * (*times)[0].forward.value : 0;
}

TEST(LayerProfile, InterpolatesBelowLaterMeasurements) {
  // The header's example: 5, 3, 6 ms at 1, 2, 4: the time of 2 samples bounds that of 1.
  LayerProfile profile;
  profile.times["g"][1] = {{1, {ms(5, 1)}}, {2, {ms(3, 1)}}, {4, {ms(6, 1)}}};
  EXPECT_THAT(forward_ms(profile, 1), DoubleNear(3, 1e-9));
  EXPECT_THAT(forward_ms(profile, 3), DoubleNear(4.5, 1e-9));
  // The last segment's slope is 1.5 ms per sample, equal to the proportion 6 / 4.
  EXPECT_THAT(forward_ms(profile, 6), DoubleNear(9, 1e-9));
}

TEST(LayerProfile, GrowsAtMostInProportionBeyondTheLargest) {
  // Slope of the last segment (9 - 1) / (2 - 1) = 8; proportional 9 / 2 = 4.5: 9 + 2 * 4.5 at 4.
  LayerProfile profile;
  profile.times["g"][1] = {{1, {ms(1, 1)}}, {2, {ms(9, 1)}}};
  EXPECT_THAT(forward_ms(profile, 4), DoubleNear(18, 1e-9));
  // A single micro-batch: proportional.
  profile.times["g"][1] = {{2, {ms(3, 1)}}};
  EXPECT_THAT(forward_ms(profile, 4), DoubleNear(6, 1e-9));
  EXPECT_THAT(forward_ms(profile, 1), DoubleNear(3, 1e-9));
}

TEST(LayerProfile, NamesWhatWasNotProfiled) {
  const LayerProfile profile = two_layers();
  EXPECT_EQ(layer_times(profile, "h", 1, 1).error().message, "m was not profiled on h; there is g");
  EXPECT_EQ(layer_times(profile, "g", 2, 1).error().message,
            "m on g was not profiled at tp 2; there is 1");
  EXPECT_EQ(layer_times(profile, "g", 1, 5).error().message,
            "m on g, tp 1, micro-batch 5: wanted 1 to 4, twice the largest that was profiled");
  LayerProfile ragged = profile;
  ragged.times["g"][1][1].pop_back();
  EXPECT_EQ(layer_times(ragged, "g", 1, 1).error().message,
            "m on g, tp 1, micro-batch 1: 1 layers, wanted 2 as at 2");
  EXPECT_EQ(layer_sizes(profile, 4).error().message, "m: no bytes of layers at tp 4; there is 1");
}

TEST(VerifyLayerProfile, TakesWhatCanBeTrue) { EXPECT_EQ(message(two_layers()), ""); }

TEST(VerifyLayerProfile, RefusesNoTimes) {
  EXPECT_EQ(message(LayerProfile{.model = "m"}), "m: no times");
}

TEST(VerifyLayerProfile, RefusesAnUnknownKind) {
  LayerProfile profile = two_layers();
  profile.times["a100-40"] = profile.times["g"];
  const auto verified = verify_layer_profile(profile, {{"g", 2e12}, {"a100-40g", 1e14}});
  EXPECT_EQ(verified.error().message, "unknown device kind 'a100-40', did you mean 'a100-40g'?");
}

TEST(VerifyLayerProfile, RefusesZeroAndNegativeTimes) {
  LayerProfile profile = two_layers();
  profile.times["g"][1][2][1].update = Seconds(0);
  EXPECT_EQ(message(profile),
            "m on g, tp 1, micro-batch 2, layer 1: update takes 0 s, wanted more than 0");
  profile.times["g"][1][2][1].forward = Seconds(-1);
  EXPECT_EQ(message(profile),
            "m on g, tp 1, micro-batch 2, layer 1: forward takes -1 s, wanted more than 0");
}

TEST(LayerOutputs, MustBeKnownOfAllButTheLast) {
  LayerProfile profile = two_layers();
  for (auto& [degree, sizes] : profile.sizes) {
    sizes[0].output = Bytes(4);
    sizes[1].output = Bytes(0);
  }
  EXPECT_TRUE(check_outputs(profile));
  profile.sizes.begin()->second[0].output = Bytes(0);
  EXPECT_EQ(check_outputs(profile).error().message,
            "m: the bytes that layer 0 gives to the next are not known");
}

// An embedding's backward pass too short to measure, and updates that were never timed.
TEST(VerifyLayerProfile, TakesWhatWasNotTimedAndSaysIt) {
  LayerProfile profile = two_layers();
  EXPECT_TRUE(say_untimed(profile).empty());
  for (auto& [batch, layers] : profile.times["g"][1]) {
    layers[0].forward = layers[1].forward * 0.1;
    layers[0].backward = Seconds(0);
    for (LayerTime& time : layers) time.update = Seconds(0);
  }
  EXPECT_EQ(message(profile), "");
  EXPECT_EQ(say_untimed(profile),
            (std::vector<std::string>{
                "m on g: the profile has 0 s for the first layer's backward pass, which is less "
                "than it resolves; it counts as nothing",
                "m on g: the profile has no update times; steps are short by the updates"}));
  // A forward pass as long as the others' implies a measurable backward pass.
  for (auto& [batch, layers] : profile.times["g"][1]) layers[0].forward = layers[1].forward;
  EXPECT_EQ(message(profile),
            "m on g, tp 1, micro-batch 1, layer 0: backward takes 0 s, wanted more than 0");
}

TEST(VerifyLayerProfile, RefusesHoles) {
  LayerProfile profile = two_layers();
  profile.times["g"][1][8] = {ms(1, 1), ms(16, 32)};
  EXPECT_EQ(message(profile),
            "m on g, tp 1, micro-batch 8: the one before is 2, at least 4 is missing");
  profile = two_layers();
  profile.times["g"][1][2].pop_back();
  EXPECT_EQ(message(profile), "m on g, tp 1, micro-batch 2: 1 layers, wanted 2");
  profile = two_layers();
  profile.sizes[1].pop_back();
  EXPECT_EQ(message(profile), "m, tp 1: bytes of 1 layers, wanted 2");
  profile = two_layers();
  profile.times["g"][2] = profile.times["g"][1];
  EXPECT_EQ(message(profile), "");
  profile.times["g"].erase(1);
  EXPECT_EQ(message(profile), "m: no bytes of layers at tp 2; there is 1");
}

TEST(VerifyLayerProfile, RefusesTimesInAnotherUnit) {
  // Hours for seconds: 6e9 / (6e-3 / 3600) = 3600 Tflop/s, peak 2.
  LayerProfile profile = two_layers();
  profile.times["g"][1][1][1] = ms(2.0 / 3600, 4.0 / 3600);
  EXPECT_EQ(message(profile),
            "m on g, tp 1, micro-batch 1, layer 1: 3600 Tflop/s, above the "
            "device's peak of 2; are the times in seconds?");
  // Milliseconds for seconds: best at micro-batch 2, 12e9 / (2 + 12) s / 2e12 = 0.00043.
  profile = two_layers();
  for (auto& [batch, layers] : profile.times["g"][1])
    for (LayerTime& time : layers)
      time = {time.forward * 1000.0, time.backward * 1000.0, time.update};
  EXPECT_EQ(message(profile),
            "m on g, tp 1: 0.00043 of the device's peak at best; are the times in seconds?");
}

TEST(VerifyLayerProfile, RefusesExchangedRows) {
  // The layers of micro-batch 2 exchanged: layer 1 falls from 36 to 2 ms, under a quarter.
  LayerProfile profile = two_layers();
  profile.times["g"][1][1][1] = ms(12, 24);
  profile.times["g"][1][2] = {ms(24, 48), ms(1, 1)};
  profile.sizes[1][1].weights = 1000;
  EXPECT_EQ(message(profile),
            "m on g, tp 1, micro-batch 2, layer 1: takes 0.002 s, 0.036 s at the "
            "micro-batch before; are rows exchanged?");
  // Micro-batches exchanged: 14 ms, then 8 ms, under three quarters.
  profile = two_layers();
  std::swap(profile.times["g"][1][1], profile.times["g"][1][2]);
  profile.sizes[1][1].weights = 100'000;
  EXPECT_EQ(message(profile),
            "m on g, tp 1, micro-batch 2: all layers take 0.008 s, 0.014 s at "
            "the micro-batch before; are rows exchanged?");
}

}  // namespace
}  // namespace motley::cost
