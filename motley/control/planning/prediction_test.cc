#include "motley/control/planning/prediction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/control/training/correcting.h"
#include "motley/testing/fake_outside.h"
#include "motley/testing/small_inputs.h"

namespace motley::control {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class PredictionTest : public ::testing::Test {
 protected:
  explicit PredictionTest(const char* cluster = kTwoCpus) : inputs_(small_inputs(cluster, 8)) {}
  Answer answer(const std::vector<std::int64_t>& samples) {
    return find_plan(inputs_,
                     {.prices = {.profiles = directory_.file("profiles.db")}, .manual = samples},
                     outside_)
        .value();
  }
  Predicted prediction(const Answer& answer) const {
    return predict(inputs_, *answer.planned, *answer.priced.costs, 2).value();
  }
  cost::ProfileStore store() const { return open_store(directory_.file("profiles.db")).value(); }

  TemporaryDirectory directory_;
  Inputs inputs_;
  FakeWorkers workers_;
  FakeClock clock_;
  RecordingListener listener_;
  const Outside outside_{workers_, clock_, listener_};
};

TEST_F(PredictionTest, OneDeviceTakesTheSumOfItsInstructions) {
  const Answer whole = answer({8, 0});
  const Predicted predicted = prediction(whole);
  // Each compute instruction takes 10 us, whatever its size.
  std::int64_t instructions = 0;
  for (const program::Instruction& each : whole.planned->program->devices[0].instructions)
    instructions += each.lane == Lane::kCompute ? 1 : 0;
  EXPECT_NEAR(predicted.step.value, 1e-5 * static_cast<double>(instructions), 1e-9);
  ASSERT_THAT(predicted.devices, SizeIs(1));
  const DevicePrediction& device = predicted.devices[0];
  EXPECT_EQ(device.name, "a:0");
  EXPECT_EQ(device.price.parts.steps, 2);
  EXPECT_EQ(device.price.parts.compute, 2 * instructions * 10'000);  // ns, of two steps
  EXPECT_EQ(device.price.parts.exposed_communication, 0);
}

TEST_F(PredictionTest, ARowADeviceSaysWhatItDoesAndHolds) {
  const Predicted predicted = prediction(answer({5, 3}));
  ASSERT_THAT(predicted.devices, SizeIs(2));
  for (const DevicePrediction& device : predicted.devices) {
    // Both devices hold all parameters: (32 * 12 + 32 + 5 * 32 + 5) floats.
    EXPECT_EQ(device.price.memory.parameters.value, 4 * (32 * 12 + 32 + 5 * 32 + 5));
    EXPECT_EQ(device.framework.value, 0);
    EXPECT_EQ(device.peak.value, static_cast<double>(device.price.memory.total.value));
    EXPECT_EQ(device.grounds.text, "measured");
    EXPECT_EQ(device.price.largest.size(), device.price.memory.largest.size());
    EXPECT_FALSE(device.price.peak_at.empty());
    EXPECT_GT(device.price.parts.exposed_communication + device.price.parts.waiting, 0);
  }
  // All gradients in one bucket exceed the largest parameter, 32 x 12.
  EXPECT_EQ(predicted.devices[0].price.largest[0], "motley::pack (bucket 0)");
  EXPECT_EQ(predicted.origin, cost::Origin::kMeasured);
}

TEST_F(PredictionTest, AnIntervalHoldsItsValue) {
  const Predicted predicted = prediction(answer({5, 3}));
  EXPECT_LT(predicted.step.low, predicted.step.value);
  EXPECT_GT(predicted.step.high, predicted.step.value);
  EXPECT_FALSE(predicted.basis.empty());
}

TEST_F(PredictionTest, WhatRunsMeasuredBecomesTheBasis) {
  const Answer first = answer({5, 3});
  const Predicted predicted = prediction(first);
  Measured measured;
  measured.step = predicted.seconds() * 1.25;
  measured.peak_bytes = {10'000, 20'000};
  cost::ProfileStore kept = store();
  for (std::size_t run = 0; run < cost::kLeastRuns; ++run)
    ASSERT_TRUE(remember(inputs_, predicted, measured, kept));
  const auto entries = kept.predictions().value();
  ASSERT_THAT(entries, SizeIs(2 * cost::kLeastRuns));
  EXPECT_EQ(entries[0].quantity, "step");
  EXPECT_EQ(entries[0].predicted, predicted.step.value);
  EXPECT_EQ(entries[0].measured, measured.step.value);
  EXPECT_EQ(entries[1].quantity, "memory");
  EXPECT_EQ(entries[1].predicted,
            static_cast<double>(predicted.devices[1].price.memory.total.value));
  EXPECT_EQ(entries[1].measured, 20'000);
  // All nine runs took a quarter longer than predicted, so the next should, too.
  const Predicted second = prediction(answer({5, 3}));
  EXPECT_NEAR(second.step.low, 1.25 * second.step.value, 1e-9);
  EXPECT_NEAR(second.step.high, 1.25 * second.step.value, 1e-9);
}

TEST_F(PredictionTest, ModelledTimesAndRunsWithoutAStepTeachNothing) {
  Predicted predicted = prediction(answer({5, 3}));
  cost::ProfileStore kept = store();
  ASSERT_TRUE(remember(inputs_, predicted, {}, kept));
  predicted.origin = cost::Origin::kModelled;
  Measured measured;
  measured.step = Seconds(1);
  ASSERT_TRUE(remember(inputs_, predicted, measured, kept));
  EXPECT_THAT(kept.predictions().value(), IsEmpty());
}

TEST_F(PredictionTest, AListenerHearsNothingOfAPredictionThatIsMade) {
  const Answer found = answer({5, 3});
  const auto predicted = if_known(foresee(inputs_, *found.outcome.plan, found.priced), listener_);
  ASSERT_TRUE(predicted);
  EXPECT_TRUE(predicted->has_value());
  for (const std::string& note : listener_.notes) EXPECT_EQ(note.find("no prediction"), note.npos);
}

}  // namespace
}  // namespace motley::control
