#include "motley/plan/optimizer.h"

#include <gmock/gmock.h>

namespace motley::plan {
namespace {

std::vector<std::string> state_names(const Optimizer& optimizer, std::size_t dims) {
  std::vector<std::string> names;
  for (const StateSpec& state : find_states(optimizer, dims)) names.emplace_back(state.name);
  return names;
}

TEST(Optimizer, States) {
  using ::testing::ElementsAre;
  EXPECT_THAT(state_names({.kind = OptimizerKind::kSgd}, 2), ElementsAre());
  EXPECT_THAT(state_names({.kind = OptimizerKind::kSgd, .momentum = 0.9}, 2),
              ElementsAre("momentum"));
  EXPECT_THAT(state_names({.kind = OptimizerKind::kAdam}, 1), ElementsAre("exp_avg", "exp_avg_sq"));
  EXPECT_THAT(state_names({.kind = OptimizerKind::kRmsprop}, 1), ElementsAre("square_avg"));
  EXPECT_THAT(state_names({.kind = OptimizerKind::kRmsprop, .momentum = 0.5}, 1),
              ElementsAre("square_avg", "momentum"));
  EXPECT_THAT(state_names({.kind = OptimizerKind::kAdafactor}, 1), ElementsAre("variance"));
  EXPECT_THAT(state_names({.kind = OptimizerKind::kAdafactor}, 4),
              ElementsAre("row_var", "col_var"));
  for (const StateSpec& state : find_states({.kind = OptimizerKind::kAdafactor}, 2))
    EXPECT_NE(state.shape, StateSpec::Shape::kParameter);
}

TEST(Optimizer, NamesInvert) {
  for (const std::string& name : optimizer_names()) {
    const auto kind = parse_optimizer_kind(name);
    ASSERT_TRUE(kind) << name;
    EXPECT_EQ(optimizer_name(*kind), name);
    EXPECT_EQ(default_optimizer(*kind).kind, *kind);
  }
}

TEST(Optimizer, UsesConstants) {
  EXPECT_TRUE(uses_constant(OptimizerKind::kSgd, "momentum"));
  EXPECT_FALSE(uses_constant(OptimizerKind::kAdam, "momentum"));
  EXPECT_FALSE(uses_constant(OptimizerKind::kLion, "eps"));
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
