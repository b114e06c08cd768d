#include "motley/control/view/loop_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/report/waits.h"

namespace motley::control {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

Log three_steps() {
  Log log;
  log.steps[0] = {.step_s = 0.5};  // the first of an epoch: the ranks' times are unknown
  log.steps[1] = {.step_s = 0.05, .compute_s = {0.02, 0.04}, .peak_bytes = {5, 6}};
  log.steps[2] = {.step_s = 0.03, .compute_s = {0.03, 0.01}};
  return log;
}

TEST(LoopTrace, RanksWaitForTheOneThatComputesLongest) {
  const trace::Trace trace = trace_loop(three_steps(), {"a:0", "b:0"});
  ASSERT_TRUE(trace::verify_trace(trace, "loop"));
  ASSERT_THAT(trace.steps, SizeIs(4));
  EXPECT_EQ(trace.steps[0], (trace::StepMark{0, 1, 0, 50'000'000, 5}));
  // a:0 computes 20 of 50 ms and waits 20 for b:0, then 30 of 30; b:0 waits 20 in the second step.
  const auto times = report::sum_times(trace, report::find_waits(trace));
  EXPECT_EQ(times[0],
            (report::DeviceTimes{2, 50'000'000, 20'000'000, 10'000'000, {0, 20'000'000}}));
  EXPECT_EQ(times[1],
            (report::DeviceTimes{2, 50'000'000, 20'000'000, 10'000'000, {20'000'000, 0}}));
}

TEST(LoopTrace, WithoutAStepThatIsKnownItIsEmpty) {
  Log log;
  log.steps[0] = {.step_s = 0.5};
  EXPECT_THAT(trace_loop(log, {"a:0"}).steps, IsEmpty());
}

}  // namespace
}  // namespace motley::control
