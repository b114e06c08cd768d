#include "motley/cost/operators/kind_times.h"

#include <gtest/gtest.h>

namespace motley::cost {
namespace {

/// 10^12 f32 operations and 10^11 bytes per second.
cluster::PlanningKind plain_kind() {
  cluster::PlanningKind kind;
  kind.memory_bandwidth = BytesPerSecond(1e11);
  kind.peak.f32 = cluster::FlopsPerSecond(1e12);
  return kind;
}

TEST(KindTimes, AddsArithmeticAndBytes) {
  const KindEfficiency half{Seconds(5e-6), 0.5, 0.25};
  // 1e9 / (1e12 / 2) = 2 ms, 1e8 / (1e11 / 4) = 4 ms.
  EXPECT_DOUBLE_EQ(kind_seconds(plain_kind(), DType::kF32, {1e9, 1e8, 1}, half).value, 6e-3);
  // Integers have no rate: only the bytes.
  EXPECT_DOUBLE_EQ(kind_seconds(plain_kind(), DType::kI64, {1e9, 1e8, 1}, half).value, 4e-3);
}

TEST(KindTimes, NothingIsFasterThanItsLaunch) {
  const KindEfficiency half{Seconds(5e-6), 0.5, 0.25};
  EXPECT_DOUBLE_EQ(kind_seconds(plain_kind(), DType::kF32, {10, 10, 1}, half).value, 5e-6);
  EXPECT_DOUBLE_EQ(kind_seconds(plain_kind(), DType::kF32, {0, 0, 0}, half).value, 0);
}

}  // namespace
}  // namespace motley::cost
