#include "motley/search/split/micro_batch_steps.h"

#include <gtest/gtest.h>

#include "motley/testing/golden.h"
#include "motley/testing/table_evaluator.h"

namespace motley::search {
namespace {

using Setting = SplitEvaluator::Setting;

/// One device of 1 s + 0.1 s per sample, with half of it before its exchange, and an update of 0.2
/// s; a group sums for 0.3 s and blocks for 0.01 s.
TableEvaluator once() {
  const Curve end{{{0, 1}, {100, 11}}};
  const StepCurves shared{{{{{0, 0.5}, {100, 5.5}}}}, end, {0.2}};
  const StepCurves alone{{}, {{{0, 1.2}, {100, 11.2}}}, {}};
  return {{{alone, shared, Bytes(1 << 20), Bytes(1000)}}, [](const std::vector<DeviceId>&) {
            return GroupExchanges{{0.3}, 0.01};
          }};
}

MicroBatches in_three(const char* model) { return {&synth::read_graph(model), {}, 3}; }

// Two passes of 1 s + 0.1 s per sample, and a step: for 10 samples each 2 * 2 + 2 s; the exchange
// may start at 2 * 2 + 1 s. Alone, the update is included once.
TEST(MicroBatchSteps, PassAndThenStep) {
  const TableEvaluator one = once();
  const MicroBatchSteps all(one, in_three("mlp"));
  const StepCurves& shared = all.curves(DeviceId(0), Setting::kShared);
  EXPECT_DOUBLE_EQ(shared.end.at(10), 6);
  EXPECT_DOUBLE_EQ(shared.ready[0].at(10), 5);
  EXPECT_EQ(shared.update, std::vector<double>{0.2});
  EXPECT_DOUBLE_EQ(all.curves(DeviceId(0), Setting::kAlone).end.at(10), 6.2);
  EXPECT_EQ(all.group_times({DeviceId(0), DeviceId(1)}).exchange, std::vector<double>{0.3});
}

TEST(MicroBatchSteps, ExchangeStatisticsEachTime) {
  const TableEvaluator one = once();
  MicroBatches steps = in_three("cnn");
  const std::vector<DeviceId> both = {DeviceId(0), DeviceId(1)};
  EXPECT_FALSE(repeats_statistics(steps));
  EXPECT_DOUBLE_EQ(MicroBatchSteps(one, steps).group_times(both).blocking, 0.01);
  steps.lowering.batch_norm_span = plan::BatchNormSpan::kMicroBatch;
  EXPECT_TRUE(repeats_statistics(steps));
  EXPECT_DOUBLE_EQ(MicroBatchSteps(one, steps).group_times(both).blocking, 0.03);
  EXPECT_DOUBLE_EQ(MicroBatchSteps(one, steps).least_times(both, 2)[0].blocking, 0.03);
  steps.times = 1;
  EXPECT_FALSE(repeats_statistics(steps));
}

// One micro-batch's memory plus the others' inputs and sums of gradients; less than all at once.
TEST(MicroBatchSteps, NeedLessMemoryThanAtOnceAndMoreThanOne) {
  const TableEvaluator one = once();
  const MicroBatches steps = in_three("mlp");
  const MicroBatchSteps all(one, steps);
  const auto peak = [&](std::int64_t times, std::int64_t samples) {
    return peak_of_tensors({steps.graph, {}, times}, samples, Setting::kShared);
  };
  const Bytes first = peak(1, 1000), three = peak(3, 3000);
  EXPECT_LT(first, three);
  EXPECT_LT(three, peak(1, 3000));
  // Derived: 1 MiB and 1000 bytes per sample, and the difference.
  EXPECT_EQ(all.peak_bytes(DeviceId(0), 1000, Setting::kShared),
            Bytes((1 << 20) + 1000 * 1000) + (three - first));
}

}  // namespace
}  // namespace motley::search
