#include "motley/cost/instruction_times.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "motley/testing/product_programs.h"

namespace motley::cost {
namespace {

const DeviceKey kOneCpu{"cpu", 1, "2.15"};
const DeviceKey kTwoGpus{"cuda", 2, "2.11"};

// Returns the times of one product measured at batches; references in the given order.
InstructionTimes times_of(const std::vector<std::pair<std::int64_t, double>>& measured) {
  ProfileStore store = memory_store();
  std::vector<program::DeviceProgram> references;
  for (const auto& [samples, seconds] : measured) {
    EXPECT_TRUE(store.put(product_entries(kOneCpu, samples, {seconds})));
    references.push_back(product_program(samples, 1));
  }
  auto times = InstructionTimes::build(references, *MeasuredTimes::load(store, kOneCpu), kOneCpu);
  EXPECT_TRUE(times) << times.error().message;
  return std::move(*times);
}

TEST(InstructionTimes, InterpolatesBetweenBatches) {
  const InstructionTimes times = times_of({{8, 3.0}, {4, 2.0}});
  EXPECT_EQ(times.batches(), (std::vector<double>{4, 8}));
  ASSERT_EQ(times.size(), 2U);
  EXPECT_EQ(times.at(0, 4), Seconds(2.0));
  EXPECT_EQ(times.at(0, 8), Seconds(3.0));
  EXPECT_EQ(times.at(0, 6), Seconds(2.5));   // halfway
  EXPECT_EQ(times.at(0, 5), Seconds(2.25));  // a quarter
  EXPECT_EQ(times.at(0, 1), Seconds(2.0));   // constant below
  EXPECT_EQ(times.at(0, 12), Seconds(4.0));  // slope 1/4 per sample: 3 + 4 / 4
}

TEST(InstructionTimes, InterpolatesScratchRoundedUp) {
  ProfileStore store = memory_store();
  for (const auto& [samples, scratch] : {std::pair{4, 100}, {8, 103}}) {
    std::vector<OpEntry> entries = product_entries(kOneCpu, samples, {1.0});
    entries[0].scratch = Bytes(scratch);
    ASSERT_TRUE(store.put(entries));
  }
  const auto times = InstructionTimes::build({product_program(4, 1), product_program(8, 1)},
                                             *MeasuredTimes::load(store, kOneCpu), kOneCpu);
  ASSERT_TRUE(times);
  EXPECT_EQ(times->scratch_bytes(4), (std::vector{Bytes(100), Bytes(0)}));  // a transfer: none
  EXPECT_EQ(times->scratch_bytes(6), (std::vector{Bytes(102), Bytes(0)}));  // 101.5
}

TEST(InstructionTimes, SlowsByThePaceOfWholeSteps) {
  // Half speed for 2 s of compute, full for 4.5 s; 3 s: 0.5 + 0.5 ln(3/2) / ln(4.5/2) = 0.75.
  const InstructionTimes times = times_of({{2, 1.0}, {4, 2.0}, {8, 3.0}, {32, 8.0}});
  const InstructionTimes slow = times.slowed(Pace({{Seconds(2), 0.5}, {Seconds(4.5), 1.0}}));
  EXPECT_EQ(slow.at(0, 2), Seconds(2.0));
  EXPECT_EQ(slow.at(0, 4), Seconds(4.0));
  EXPECT_DOUBLE_EQ(slow.at(0, 8).value, 4.0);
  EXPECT_EQ(slow.at(0, 32), Seconds(8.0));
  EXPECT_EQ(times.total(8), Seconds(3.0));
}

// One operator grows tenfold, the other not at all, so it gets faster as the pace rises.
TEST(InstructionTimes, OperatorsThatHardlyGrowDoNotFallBeyondTheLastBatch) {
  ProfileStore store = memory_store();
  for (const auto& [samples, grows] : {std::pair{2, 1.0}, {4, 10.0}})
    ASSERT_TRUE(store.put(product_entries(kOneCpu, samples, {grows, 1.0})));
  const auto times = InstructionTimes::build({product_program(2, 2), product_program(4, 2)},
                                             *MeasuredTimes::load(store, kOneCpu), kOneCpu);
  ASSERT_TRUE(times) << times.error().message;
  const InstructionTimes slow = times->slowed(Pace({{Seconds(2), 0.5}, {Seconds(11), 1.0}}));
  EXPECT_EQ(slow.at(1, 2), Seconds(2.0));
  EXPECT_EQ(slow.at(1, 4), Seconds(1.0));  // whole steps stay as measured
  EXPECT_EQ(slow.total(2), Seconds(4.0));
  EXPECT_EQ(slow.total(4), Seconds(11.0));
  EXPECT_EQ(slow.at(1, 8), Seconds(1.0));
  EXPECT_EQ(slow.total(8), Seconds(21.0));  // at most proportional
}

TEST(InstructionTimes, SpreadIsWeightedByTime) {
  ProfileStore store = memory_store();
  std::vector<OpEntry> entries = product_entries(kOneCpu, 4, {1.0, 3.0});
  entries[0].spread = 0.2;
  entries[1].spread = 0.1;
  ASSERT_TRUE(store.put(entries));
  const auto times = InstructionTimes::build({product_program(4, 2)},
                                             *MeasuredTimes::load(store, kOneCpu), kOneCpu);
  ASSERT_TRUE(times);
  EXPECT_DOUBLE_EQ(times->spread(), (1 * 0.2 + 3 * 0.1) / 4);
}

TEST(InstructionTimes, TransfersTakeNothing) {
  const InstructionTimes times = times_of({{4, 2.0}, {8, 3.0}});
  EXPECT_EQ(times.at(1, 6), Seconds(0.0));
  EXPECT_EQ(times.at(1, 60), Seconds(0.0));
}

TEST(InstructionTimes, GoesOnAtMostInProportion) {
  // The last slope is (8 - 1) / 4 = 1.75 per sample, more than 8 / 8 = 1: 8 + 4 * 1.
  EXPECT_EQ(times_of({{4, 1.0}, {8, 8.0}}).at(0, 12), Seconds(12.0));
  // One batch: proportional, 3 / 4 per sample; constant below.
  EXPECT_EQ(times_of({{4, 3.0}}).at(0, 8), Seconds(6.0));
  EXPECT_EQ(times_of({{4, 3.0}}).at(0, 1), Seconds(3.0));
}

TEST(InstructionTimes, PoolsAdjacentViolators) {
  // 3 > 1 become 2, 2; 2.5 stays above.
  InstructionTimes times = times_of({{1, 3.0}, {2, 1.0}, {4, 2.5}});
  EXPECT_EQ(times.at(0, 1), Seconds(2.0));
  EXPECT_EQ(times.at(0, 2), Seconds(2.0));
  EXPECT_EQ(times.at(0, 4), Seconds(2.5));
  // 5 > 4 become 4.5, 4.5; with the 0 after them all three become 3.
  times = times_of({{1, 5.0}, {2, 4.0}, {4, 0.0}, {8, 3.0}});
  EXPECT_EQ(times.at(0, 1), Seconds(3.0));
  EXPECT_EQ(times.at(0, 4), Seconds(3.0));
  EXPECT_EQ(times.at(0, 8), Seconds(3.0));
}

TEST(InstructionTimes, NamesTheMissingKey) {
  ProfileStore store = memory_store();
  ASSERT_TRUE(store.put(product_entries(kOneCpu, 4, {1.0, 1.0})));
  ASSERT_TRUE(store.put(product_entries(kOneCpu, 8, {1.0})));
  const std::vector references = {product_program(4, 2), product_program(8, 2)};
  const auto times =
      InstructionTimes::build(references, *MeasuredTimes::load(store, kOneCpu), kOneCpu);
  ASSERT_FALSE(times);
  EXPECT_EQ(times.error().kind, ErrorKind::kUsage);
  EXPECT_EQ(times.error().code, "cost.missing-profile");
  EXPECT_EQ(times.error().message,
            "no measurement of aten::mm(f32[8,2], f32[2,2]) on cpu with threads = 1 and PyTorch "
            "2.15; run `motley profile` with this model and cluster");
  const auto other =
      InstructionTimes::build(references, *MeasuredTimes::load(store, kTwoGpus), kTwoGpus);
  ASSERT_FALSE(other);
  EXPECT_EQ(
      other.error().message,
      "no measurement of aten::mm(f32[4,1], f32[1,2]) and 3 more on cuda with threads = 2 and "
      "PyTorch 2.11; run `motley profile` with this model and cluster");
}

TEST(InstructionTimesDeath, RefusesLoweringsOfTwoKinds) {
  const ProfileStore store = memory_store();
  EXPECT_DEATH(
      static_cast<void>(InstructionTimes::build({product_program(4, 1), product_program(8, 2)},
                                                *MeasuredTimes::load(store, kOneCpu), kOneCpu)),
      "check failed");
}

// Nondecreasing, at most proportional beyond the last batch, within the measured range between.
RC_GTEST_PROP(InstructionTimesProperty, IsMonotone, ()) {
  std::vector<std::pair<std::int64_t, double>> measured;
  std::int64_t samples = 0;
  double least = 1e9, most = 0;
  for (int i = 0, count = *rc::gen::inRange(1, 7); i < count; ++i) {
    samples += *rc::gen::inRange(1, 10);
    const double seconds = *rc::gen::inRange(0, 1000) * 1e-3;
    least = std::min(least, seconds);
    most = std::max(most, seconds);
    measured.emplace_back(samples, seconds);
  }
  const InstructionTimes times = times_of(measured);
  double before = 0;
  for (double s = 0.5; s < 2.0 * static_cast<double>(samples); s += 0.5) {
    const double now = times.at(0, s).value;
    RC_ASSERT(now >= before - 1e-12);
    if (s <= static_cast<double>(samples)) RC_ASSERT(now >= least - 1e-12 && now <= most + 1e-12);
    before = now;
  }
  const auto last = static_cast<double>(samples);
  RC_ASSERT(times.at(0, 3 * last).value <= 3 * times.at(0, last).value + 1e-12);
}

}  // namespace
}  // namespace motley::cost
