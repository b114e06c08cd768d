#include "motley/run/feed/feed.h"

#include <gtest/gtest.h>

namespace motley::run {
namespace {

TEST(Feed, AMachineThatNeedsNoSampleLoadsNone) {
  FeedOptions options;
  options.source = {.path = "nowhere.py", .function = "open"};
  options.inputs = {{.name = "x", .dtype = DType::kF32, .sample_shape = {3}}};
  options.order = BatchOrder::endless({4, {{}, {0, 1, 2, 3}}}, 0, 0);
  options.machines = {"here", "there"};
  auto feed = open_feed(std::move(options));
  ASSERT_TRUE(feed) << feed.error().message;
  for (int batch = 0; batch < 3; ++batch) {
    const auto samples = (*feed)->next();
    ASSERT_TRUE(samples) << samples.error().message;
    EXPECT_EQ((*samples)->samples(), 0);
  }
}

}  // namespace
}  // namespace motley::run
