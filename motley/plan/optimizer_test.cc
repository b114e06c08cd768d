#include "motley/plan/optimizer.h"

#include <gtest/gtest.h>

namespace motley::plan {
namespace {

TEST(Optimizer, CountsStateTensors) {
  EXPECT_EQ((Optimizer{.kind = OptimizerKind::kSgd}).states(), 0);
  EXPECT_EQ((Optimizer{.kind = OptimizerKind::kSgd, .momentum = 0.9}).states(), 1);
  EXPECT_EQ((Optimizer{.kind = OptimizerKind::kAdam}).states(), 2);
  EXPECT_EQ((Optimizer{.kind = OptimizerKind::kAdamW}).states(), 2);
}

TEST(Optimizer, NamesInvert) {
  for (const auto kind : {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdamW}) {
    EXPECT_EQ(parse_optimizer_kind(optimizer_name(kind)).value(), kind);
  }
}

TEST(Optimizer, JsonRoundTrip) {
  const Optimizer optimizer{.kind = OptimizerKind::kAdam,
                            .lr = 0.1,
                            .weight_decay = 1e-4,
                            .beta1 = 0.8,
                            .beta2 = 0.99,
                            .eps = 1e-6};
  const auto parsed = optimizer_from_json(optimizer_to_json(optimizer), "o");
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  EXPECT_EQ(*parsed, optimizer);
}

}  // namespace
}  // namespace motley::plan
