#include "motley/cost/operators/batch_curves.h"

#include <gtest/gtest.h>

#include "motley/testing/product_programs.h"

namespace motley::cost {
namespace {

/// Products [b, 1] x [1, 2] and [b, 2] x [2, 2] at 4 and 16 samples: the i-th takes i + b seconds.
BatchCurves curves() {
  return {{product_program(16, 2), product_program(4, 2)}, [](std::size_t i, double batch) {
            return TimeSource::Answer{Seconds(static_cast<double>(i) + batch), Bytes(7)};
          }};
}

TEST(BatchCurves, KnowsItsOperatorsInOtherProgramsAtOtherBatches) {
  // Nine samples: 9 s, and 10 s for the second. The third product is unknown, and transfers take 0.
  const auto answers = curves().times(product_program(9, 3));
  ASSERT_EQ(answers.size(), 4u);
  EXPECT_DOUBLE_EQ(answers[0]->seconds.value, 9);
  EXPECT_DOUBLE_EQ(answers[1]->seconds.value, 10);
  EXPECT_EQ(answers[1]->scratch, Bytes(7));
  EXPECT_FALSE(answers[2]);
  EXPECT_EQ(answers[3]->seconds, Seconds(0));
}

TEST(BatchCurves, WantsOneBatchThatExplainsAllNumbers) {
  program::DeviceProgram other = product_program(9, 1);
  other.buffers[1].shape = {1, 3};  // [9, 1] x [1, 3]
  EXPECT_FALSE(curves().times(other)[0]);
}

TEST(BatchCurves, OfOneBatchKnowsThatOne) {
  const BatchCurves one({product_program(4, 1)}, [](std::size_t, double batch) {
    return TimeSource::Answer{Seconds(batch), Bytes(0)};
  });
  EXPECT_EQ(one.times(product_program(4, 1))[0]->seconds, Seconds(4));
  EXPECT_FALSE(one.times(product_program(5, 1))[0]);
}

}  // namespace
}  // namespace motley::cost
