#include "motley/elastic/checkpoint_time.h"

#include <gtest/gtest.h>

namespace motley::elastic {
namespace {

constexpr CheckpointTime kModel{Seconds(3), Seconds(20e-9), Seconds(200e-9)};

TEST(CheckpointTime, AddsItsParts) {
  // 3 + 50e6 * 20e-9 + 4e6 * 200e-9 = 3 + 1 + 0.8.
  EXPECT_NEAR(estimate_checkpoint(kModel, {Bytes(50'000'000), Bytes(4'000'000)}).value, 4.8, 1e-12);
}

}  // namespace
}  // namespace motley::elastic
