#include "motley/run/batch_order.h"

#include <gtest/gtest.h>

namespace motley::run {
namespace {

TEST(BatchOrder, GoesOnWhereATrainingIsResumed) {
  const BatchOrder order = BatchOrder::endless({10, {{0, 1}, {2}}}, 7, 70);
  EXPECT_EQ(order.first_batch(), 7);
  EXPECT_EQ(order.position(7), 70);
  EXPECT_EQ(order.position(9), 90);
  EXPECT_EQ(order.kind(9).size, 10);
}

TEST(BatchOrder, PassesEndWithWhatIsLeft) {
  const BatchOrder order = BatchOrder::passes({{10, {}}, {3, {}}}, 2);  // 23 samples
  const std::int64_t positions[] = {0, 10, 20, 0, 10, 20, 0};
  const std::int64_t sizes[] = {10, 10, 3, 10, 10, 3, 10};
  for (int batch = 0; batch < 7; ++batch) {
    EXPECT_EQ(order.position(batch), positions[batch]) << batch;
    EXPECT_EQ(order.kind(batch).size, sizes[batch]) << batch;
  }
}

TEST(BatchOrder, PassesOfWholeBatchesBeginAgain) {
  const BatchOrder order = BatchOrder::passes({{10, {}}}, 2);
  EXPECT_EQ(order.position(1), 10);
  EXPECT_EQ(order.position(2), 0);
}

TEST(SampleNumbers, CountEpochsOfASlice) {
  const auto numbers = SampleNumbers::make({.path = "d.py", .begin = 5, .end = 9}, 100, {});
  ASSERT_TRUE(numbers);
  EXPECT_EQ(numbers->samples(), 4);
  EXPECT_EQ(numbers->number(0), 5);
  EXPECT_EQ(numbers->number(6), 7);
  EXPECT_EQ(numbers->epoch(6), 1);
}

TEST(SampleNumbers, AStreamHasOneOrder) {
  const auto numbers = SampleNumbers::make({.path = "d.py"}, -1, {});
  ASSERT_TRUE(numbers);
  EXPECT_EQ(numbers->number(1000), 1000);
  EXPECT_EQ(numbers->epoch(1000), 0);
  EXPECT_EQ(SampleNumbers::make({.path = "d.py"}, -1, 3).error().code, "data.stream");
  EXPECT_EQ(SampleNumbers::make({.path = "d.py", .begin = 2}, -1, {}).error().code, "data.stream");
  EXPECT_EQ(SampleNumbers::make({.path = "d.py"}, 0, {}).error().code, "data.empty");
}

}  // namespace
}  // namespace motley::run
