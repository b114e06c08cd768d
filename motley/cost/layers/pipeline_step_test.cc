#include "motley/cost/layers/pipeline_step.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>

namespace motley::cost {
namespace {

using ::testing::DoubleNear;

// A constant rate of 1 GB/s for all sizes.
const RateCurve kGigabyte{{0, 0, 1}, BytesPerSecond(1e9)};

std::vector<StageWork> work_of(std::size_t stages, double forward, double backward) {
  return {stages, StageWork{Seconds(forward), Seconds(backward)}};
}
std::vector<LinkTime> links_of(std::size_t stages, double seconds) {
  return {stages - 1, LinkTime{Seconds(seconds), Seconds(seconds)}};
}

TEST(TransferTime, FollowsTheCurve) {
  // 2 + 3 x - x^2 at 2 MB, x = 1: 4 GB/s; two flows share it: 2e6 / 2e9 = 1 ms.
  const RateCurve curve{{-1, 3, 2}, BytesPerSecond(10e9)};
  EXPECT_THAT(transfer_time(curve, Bytes(2'000'000), 2).value, DoubleNear(1e-3, 1e-12));
  // Summit at x = 1.5: 4.25 GB/s, also at 2^10 MB.
  EXPECT_THAT(transfer_time(curve, Bytes(1024'000'000), 1).value, DoubleNear(1.024 / 4.25, 1e-9));
  // Not above the peak: 3 GB/s.
  EXPECT_THAT(transfer_time({curve.coefficients, BytesPerSecond(3e9)}, Bytes(2'000'000), 1).value,
              DoubleNear(2e6 / 3e9, 1e-12));
  // Below 1 MB the time of 1 MB: 1e6 / 2e9.
  EXPECT_THAT(transfer_time(curve, Bytes(10), 1).value, DoubleNear(0.5e-3, 1e-12));
  EXPECT_EQ(transfer_time(curve, Bytes(0), 1), Seconds(0));
}

TEST(RunPipeline, StandsStillInMessages) {
  // The header's example.
  const auto spans = run_pipeline(work_of(2, 1, 2), links_of(2, 0.5), 2, PipelineSchedule::k1F1B);
  EXPECT_THAT(spans[0].end.value, DoubleNear(11, 1e-12));
  EXPECT_THAT(spans[1].end.value, DoubleNear(9, 1e-12));
  EXPECT_THAT(spans[1].compute.value, DoubleNear(6, 1e-12));
  EXPECT_THAT(spans[1].transfer.value, DoubleNear(2, 1e-12));
  // Stage 1 begins at 1.5, of which 0.5 in the message.
  EXPECT_THAT(spans[1].fill.value, DoubleNear(1, 1e-12));
}

TEST(RunPipeline, UnequalStagesWaitForTheSlowest) {
  // Two stages, 1F1B, 3 micro-batches, no message time. Stage 0: F 1, B 1; stage 1: F 2, B 2.
  // Stage 1 begins at 1 and never waits: 1 + 3 * 4 = 13; then the last B of stage 0: 14.
  const std::vector<StageWork> work = {{Seconds(1), Seconds(1)}, {Seconds(2), Seconds(2)}};
  const auto spans = run_pipeline(work, links_of(2, 0), 3, PipelineSchedule::k1F1B);
  EXPECT_THAT(spans[1].end.value, DoubleNear(13, 1e-12));
  EXPECT_THAT(spans[0].end.value, DoubleNear(14, 1e-12));
}

TEST(RunPipeline, GPipeRunsAllForwardsFirst) {
  // Two equal stages without message time: forwards end at 2 + M - 1, backwards take as long:
  // 3 micro-batches: 4 * 1 + 4 * 2 = 12.
  const auto spans = run_pipeline(work_of(2, 1, 2), links_of(2, 0), 3, PipelineSchedule::kGPipe);
  EXPECT_THAT(spans[0].end.value, DoubleNear(12, 1e-12));
  EXPECT_THAT(spans[1].end.value, DoubleNear(10, 1e-12));
}

RC_GTEST_PROP(RunPipeline, EqualStagesTakeTheClosedForm, ()) {
  // (M + S - 1) (F + B) without message time, for both schedules.
  const auto stages = *rc::gen::inRange<std::size_t>(1, 9);
  const auto micro_batches = *rc::gen::inRange<std::int64_t>(1, 20);
  const auto schedule = *rc::gen::element(PipelineSchedule::k1F1B, PipelineSchedule::kGPipe);
  const auto spans =
      run_pipeline(work_of(stages, 1, 2), links_of(stages, 0), micro_batches, schedule);
  const double slots = static_cast<double>(micro_batches) + static_cast<double>(stages) - 1;
  RC_ASSERT(std::abs(spans[0].end.value - 3 * slots) < 1e-9);
}

RC_GTEST_PROP(RunPipeline, EndsAndBoundsHold, ()) {
  // Whatever the times: nobody waits in a circle (checked inside), each stage computes all of its
  // work, and the end is not before the work and messages of any stage.
  const auto stages = *rc::gen::inRange<std::size_t>(1, 7);
  const auto micro_batches = *rc::gen::inRange<std::int64_t>(1, 12);
  const auto schedule = *rc::gen::element(PipelineSchedule::k1F1B, PipelineSchedule::kGPipe);
  std::vector<StageWork> work;
  for (std::size_t s = 0; s < stages; ++s)
    work.push_back({Seconds(*rc::gen::inRange(1, 9)), Seconds(*rc::gen::inRange(1, 9))});
  const auto spans = run_pipeline(work, links_of(stages, 1), micro_batches, schedule);
  for (std::size_t s = 0; s < stages; ++s) {
    const auto n = static_cast<double>(micro_batches);
    RC_ASSERT(spans[s].compute.value == n * (work[s].forward + work[s].backward).value);
    const double edges = (s > 0 ? 1 : 0) + (s + 1 < stages ? 1 : 0);
    RC_ASSERT(spans[s].transfer.value == 2 * n * edges);
    RC_ASSERT(spans[0].end.value >= (spans[s].compute + spans[s].transfer).value);
  }
}

/// Three layers of 1 s forward, 2 s backward, 0.25 s update at each micro-batch; 1 GB of gradients
/// and 4 GB of states each; 2, 3, 5 GB kept and 1 GB given on a sample. Hosts of two devices;
/// 1 GB/s between hosts for one device or two, 4 GB/s inside for one pair.
LayerProfile three_layers() {
  LayerProfile profile;
  profile.model = "m";
  const LayerTime time{Seconds(1), Seconds(2), Seconds(0.25)};
  profile.times["g"][1] = profile.times["g"][2] = {{1, {time, time, time}}};
  constexpr std::int64_t kGB = 1'000'000'000;
  for (const std::int64_t kept : {2, 3, 5})
    profile.sizes[1].push_back({1, Bytes(kGB), Bytes(4 * kGB), Bytes(kept * kGB), Bytes(kGB)});
  profile.sizes[2] = profile.sizes[1];
  return profile;
}

StageNetwork network() {
  StageNetwork network;
  network.between[{"g", "g"}] = {{1, kGigabyte}, {2, kGigabyte}};
  network.inside["g"] = {{2, RateCurve{{0, 0, 4}, BytesPerSecond(4e9)}}};
  network.devices_per_host["g"] = 2;
  return network;
}

PipelinePlan one_stage(std::size_t replicas, int degree) {
  return {.stages = {{0, 3, {replicas, StageGroup{"g", degree}}}}};
}

PipelinePlan two_stages() {
  return {.stages = {{0, 1, {{"g", 2}}}, {1, 3, {{"g", 2}}}}, .micro_batches = 2};
}

PipelineStep step_of(const PipelinePlan& plan, const LayerProfile& profile = three_layers(),
                     const PipelineConstants& constants = {}) {
  const auto step = estimate_pipeline_step(plan, profile, network(), constants);
  EXPECT_TRUE(step) << step.error().message;
  return step ? *step : PipelineStep{};
}

TEST(PipelineStep, OneStageOneReplica) {
  // 3 layers * (1 + 2 + 0.25).
  const PipelineStep step = step_of(one_stage(1, 2));
  EXPECT_THAT(step.step.value, DoubleNear(9.75, 1e-9));
  EXPECT_THAT(step.times[0].compute.value, DoubleNear(9.75, 1e-9));
  EXPECT_THAT(step.times[0].bubble.value, DoubleNear(0, 1e-9));
}

TEST(PipelineStep, ReplicasExchangeTheirGradients) {
  // Two replicas of two devices, each a host: 3 GB in two halves, 2 messages of 1.5 GB. Two devices
  // of a host share 1 GB/s: 3 s each. With a slowdown of 2: 12 s in all.
  EXPECT_THAT(step_of(one_stage(2, 2)).step.value, DoubleNear(9.75 + 6, 1e-9));
  EXPECT_THAT(step_of(one_stage(2, 2), three_layers(), {.exchange_slowdown = 2}).step.value,
              DoubleNear(9.75 + 12, 1e-9));
  // Two replicas of one device on one host: 2 messages of 1.5 GB at 4 GB/s.
  EXPECT_THAT(step_of(one_stage(2, 1)).step.value, DoubleNear(9.75 + 0.75, 1e-9));
  // Four of one device on two hosts: 2 * 3 messages of 0.75 GB; both devices of a host belong to
  // the one ring, so its hop between hosts has the whole 1 GB/s.
  EXPECT_THAT(step_of(one_stage(4, 1)).step.value, DoubleNear(9.75 + 4.5, 1e-9));
}

TEST(PipelineStep, TiedWeightsAreExchangedAndHeldOnce) {
  LayerProfile profile = three_layers();
  profile.tied = {0, 2};
  // In one stage one of the three layers less: 2 GB, 2 messages of 1 GB at 0.5 GB/s.
  EXPECT_THAT(step_of(one_stage(2, 2), profile).step.value, DoubleNear(9.75 + 4, 1e-9));
  EXPECT_EQ(step_of(one_stage(2, 2), profile).memory[0].states, Bytes(8'000'000'000));
  // In two stages 1 GB between them, 2 messages of 0.5 GB at 0.5 GB/s, when both have ended, at 23
  // (see PartsSumToTheStep); then stage 1 updates two layers.
  const PipelineStep step = step_of(two_stages(), profile);
  EXPECT_THAT(step.step.value, DoubleNear(23 + 2 + 0.5, 1e-9));
  // It stood in the sum, too: 8 + 2.
  EXPECT_THAT(step.times[1].communication.value, DoubleNear(10, 1e-9));
}

TEST(PipelineStep, PartsSumToTheStep) {
  // Stage 0: F 1, B 2; stage 1: F 2, B 4; a message of 1 GB at 1/2 GB/s: 2 s. Two micro-batches:
  // stage 0: F0 0-1, A0 1-3, F1 3-4; stage 1: F0 3-5, B0 5-9; G0 9-11, A1 11-13; stage 0: B0 13-15;
  // stage 1: F1 13-15, B1 15-19; G1 19-21; stage 0: B1 21-23, update 23-23.25.
  const PipelineStep step = step_of(two_stages());
  EXPECT_THAT(step.step.value, DoubleNear(23.25, 1e-9));
  // Stage 0: compute 2 * 3 + 0.25, messages 4 * 2, waiting 4-9 and 15-19.
  EXPECT_THAT(step.times[0].compute.value, DoubleNear(6.25, 1e-9));
  EXPECT_THAT(step.times[0].communication.value, DoubleNear(8, 1e-9));
  EXPECT_THAT(step.times[0].waiting.value, DoubleNear(9, 1e-9));
  EXPECT_THAT(step.times[0].bubble.value, DoubleNear(0, 1e-9));
  // Stage 1: compute 2 * 6 + 0.5, messages 8; idle 0-1 and 21.5-23.25.
  EXPECT_THAT(step.times[1].compute.value, DoubleNear(12.5, 1e-9));
  EXPECT_THAT(step.times[1].waiting.value, DoubleNear(0, 1e-9));
  EXPECT_THAT(step.times[1].bubble.value, DoubleNear(2.75, 1e-9));
}

TEST(PipelineStep, NamesThePartsOfTheMemory) {
  // Stage 0 keeps 2 GB for each of two micro-batches in flight; its layer in backward holds 2 GB
  // of gradients; 4 GB of states, 1 GB of bucket; (4 + 4 + 2) * 0.1 of slack; 0.5 GB of context.
  const PipelineStep step = step_of(two_stages(), three_layers(),
                                    {.context = Bytes(500'000'000), .allocator_overhead = 1.1});
  EXPECT_EQ(step.memory[0].activations, Bytes(4'000'000'000));
  EXPECT_EQ(step.memory[0].workspace, Bytes(2'000'000'000));
  EXPECT_EQ(step.memory[0].slack, Bytes(1'000'000'000));
  EXPECT_EQ(step.memory[0].total(), Bytes(12'500'000'000));
  // Stage 1: 8 of states, 8 kept by one in flight, 5 of workspace, 2.1 of slack, 2 of bucket.
  EXPECT_EQ(step.memory[1].total(), Bytes(25'600'000'000));
  EXPECT_EQ(step.peak, Bytes(25'600'000'000));
}

TEST(PipelineStep, GPipeKeepsAllMicroBatches) {
  PipelinePlan plan = two_stages();
  plan.micro_batches = 4;
  EXPECT_EQ(step_of(plan).memory[1].activations, Bytes(8'000'000'000));
  plan.schedule = PipelineSchedule::kGPipe;
  EXPECT_EQ(step_of(plan).memory[1].activations, Bytes(32'000'000'000));
}

TEST(PipelineStep, UnequalKindsSetThePace) {
  // A second replica on a kind twice as slow: 3 * (2 + 4 + 0.5), and 3 GB over 1 GB/s between the
  // kinds, one device a host: 2 messages of 1.5 s.
  LayerProfile profile = three_layers();
  const LayerTime slow{Seconds(2), Seconds(4), Seconds(0.5)};
  profile.times["h"][1] = {{1, {slow, slow, slow}}};
  StageNetwork mixed = network();
  mixed.between[{"g", "h"}] = mixed.between[{"h", "g"}] = {{1, kGigabyte}};
  const PipelinePlan plan{.stages = {{0, 3, {{"g", 1}, {"h", 1}}}}};
  const auto step = estimate_pipeline_step(plan, profile, mixed);
  ASSERT_TRUE(step) << step.error().message;
  EXPECT_THAT(step->step.value, DoubleNear(19.5 + 3, 1e-9));
}

TEST(PipelineStep, RefusesWhatDoesNotFit) {
  const auto message = [](const PipelinePlan& plan, const StageNetwork& joined = network()) {
    return estimate_pipeline_step(plan, three_layers(), joined).error().message;
  };
  PipelinePlan plan = two_stages();
  plan.stages[1].end = 2;
  EXPECT_EQ(message(plan), "stages end at layer 2, wanted 3");
  plan.stages[1].first = 2;
  EXPECT_EQ(message(plan), "stage 1 has layers 2 to 2, wanted a start at 1");
  plan = two_stages();
  plan.stages[1].replicas.push_back({"g", 2});
  EXPECT_EQ(message(plan), "stage 1 has 2 replicas, wanted 1");
  plan = two_stages();
  plan.micro_batches = 0;
  EXPECT_EQ(message(plan),
            "0 micro-batches of 1 samples in 2 stages, wanted 1 to 1000000 of 1 or more in 1 or "
            "more");
  EXPECT_EQ(message(two_stages(), StageNetwork{}), "no rate between g and g");
  EXPECT_EQ(message(PipelinePlan{}), "no replica");
}

TEST(PipelineStep, NeedsTheBytesOfAMessage) {
  LayerProfile profile = three_layers();
  profile.sizes[2][0].output = Bytes(0);
  EXPECT_EQ(estimate_pipeline_step(two_stages(), profile, network()).error().message,
            "m: the bytes that layer 0 gives to the next stage are not known");
}

}  // namespace
}  // namespace motley::cost
