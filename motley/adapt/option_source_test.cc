#include "motley/adapt/option_source.h"

#include <gtest/gtest.h>

namespace motley::adapt {
namespace {

std::vector<BatchOption> one_and_both() {
  const DeviceCurve a{"a", {{0, 0.1}, {100, 1.1}}}, b{"b", {{0, 0.1}, {100, 2.1}}};
  return {{"a", {a}, {.tail = Seconds(0)}, 1}, {"a, b", {a, b}, {.tail = Seconds(0.2)}, 2}};
}

TEST(OptionSource, FindsTheGroupOfAStep) {
  const auto options = one_and_both();
  EXPECT_EQ(find_option(options, {{"b", 1}, {"a", 2}}), 1);
  EXPECT_EQ(find_option(options, {{"a", 2}}), 0);
  EXPECT_EQ(find_option(options, {{"b", 2}}), 1);  // with a, which is idle
  EXPECT_EQ(find_option(options, {{"c", 2}}), -1);
  EXPECT_EQ(samples_of(options[1], {{"b", 1}, {"a", 2}}), (std::vector<std::int64_t>{2, 1}));
}

}  // namespace
}  // namespace motley::adapt
