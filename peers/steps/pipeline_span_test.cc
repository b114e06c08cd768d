#include "peers/steps/pipeline_span.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace motley::peers {
namespace {

MicroBatchTimes times(double forward, double backward) {
  return {Seconds(forward), Seconds(backward)};
}

TEST(PipelineSpan, OneStageRunsOneMicroBatchAfterTheOther) {
  EXPECT_DOUBLE_EQ(pipeline_span({times(1, 2)}, Seconds(9), 4).value, 12);
}

TEST(PipelineSpan, MessagesOverlapWithComputation) {
  // The header's example.
  EXPECT_DOUBLE_EQ(pipeline_span({times(1, 2), times(1, 2)}, Seconds(0.5), 2).value, 10);
}

TEST(PipelineSpan, EqualStagesPayOneBubbleAStage) {
  // Without messages: (micro-batches + stages - 1) (forward + backward) = (8 + 3) 3.
  const std::vector stages(4, times(1, 2));
  EXPECT_DOUBLE_EQ(pipeline_span(stages, Seconds(0), 8).value, 33);
}

TEST(PipelineSpan, TheSlowestStageSetsThePace) {
  // Stage 1 is never idle between its first forward and last backward: filled by a forward and a
  // message (1 + 0.5), 6 micro-batches of 2 + 4, emptied by a message and a backward.
  EXPECT_DOUBLE_EQ(pipeline_span({times(1, 2), times(2, 4)}, Seconds(0.5), 6).value,
                   1.5 + 36 + 2.5);
}

TEST(PipelineSpan, FewerMicroBatchesThanStages) {
  // One micro-batch through three stages and back: 3 (1 + 2) + 4 messages of 1.
  EXPECT_DOUBLE_EQ(pipeline_span(std::vector(3, times(1, 2)), Seconds(1), 1).value, 13);
}

RC_GTEST_PROP(PipelineSpan, IsAtLeastTheSlowestStageAndAtMostAllInTurn, ()) {
  std::vector<MicroBatchTimes> stages;
  double all = 0, slowest = 0;
  const int depth = *rc::gen::inRange(1, 6);
  const int count = *rc::gen::inRange(1, 12);
  const double transfer = *rc::gen::inRange(0, 4);
  for (int s = 0; s < depth; ++s) {
    const double forward = *rc::gen::inRange(1, 9), backward = *rc::gen::inRange(1, 9);
    stages.push_back(times(forward, backward));
    all += forward + backward;
    slowest = std::max(slowest, forward + backward);
  }
  const double span = pipeline_span(stages, Seconds(transfer), count).value;
  RC_ASSERT(span >= count * slowest);
  RC_ASSERT(span >= all + 2 * (depth - 1) * transfer);
  RC_ASSERT(span <= count * (all + 2 * (depth - 1) * transfer));
}

}  // namespace
}  // namespace motley::peers
