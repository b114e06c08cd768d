#include "motley/search/carrying.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/search/planners.h"
#include "motley/testing/golden.h"
#include "motley/testing/invented_profile.h"

namespace motley::search {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class CarryingTest : public ::testing::Test {
 protected:
  Result<plan::PlanOutcome> plan(const char* planner,
                                 std::optional<plan::Carried> wanted = std::nullopt,
                                 const std::function<void(plan::Problem&)>& change = nullptr) {
    invented_ = std::make_unique<InventedProfile>(graph_, cluster_, batch_);
    const PlannerInputs inputs = invented_->evaluator().inputs();
    plan::Problem problem = invented_->problem();
    problem.bucket_bytes = Bytes(128);
    if (change) change(problem);
    return Carrying(inputs, make_planner(planner, inputs).value(), wanted).plan(problem);
  }

  cluster::Cluster cluster_ = three_devices("far");
  std::int64_t batch_ = 12;
  graph::Graph graph_ = synth::read_graph("mlp");
  std::unique_ptr<InventedProfile> invented_;
};

/// Products one behind the other: of each layer's weights a gradient, the last one's first.
graph::Graph deep_graph(int layers, int width) {
  std::string sources, forward, backward, outputs;
  int next = layers + 2;  // %0: x, then weights, then the tangent
  std::vector<int> inputs = {0};
  for (int layer = 1; layer <= layers; ++layer, ++next) {
    sources += fmt::format("param %{0}: f32[{1}, {1}] \"w{0}\"\n", layer, width);
    forward += fmt::format("op %{}: f32[batch, {}] = aten::mm(%{}, %{}) fwd \"l{}\"\n", next, width,
                           inputs.back(), layer, layer);
    inputs.push_back(next);
  }
  const int loss = next++;
  int gradient = next++;
  forward += fmt::format("op %{}: f32[] = aten::sum(%{}, none) fwd \"\"\n", loss, inputs.back());
  backward +=
      fmt::format("op %{}: f32[batch, {}] = aten::expand(%{}, [size(batch), {}], false) bwd \"\"\n",
                  gradient, width, layers + 1, width);
  for (int layer = layers; layer > 0; --layer) {
    const int turned = next++, made = next++, weights = next++, before = next++;
    backward += fmt::format(
        "op %{0}: f32[{5}, batch] = aten::t(%{4}) bwd \"l\"\n"
        "op %{1}: f32[{5}, {5}] = aten::mm(%{0}, %{6}) bwd \"l\"\n"
        "op %{2}: f32[{5}, {5}] = aten::t(%{7}) bwd \"l\"\n"
        "op %{3}: f32[batch, {5}] = aten::mm(%{6}, %{2}) bwd \"l\"\n",
        turned, made, weights, before, inputs[static_cast<std::size_t>(layer) - 1], width, gradient,
        layer);
    outputs += fmt::format("output gradient %{} of \"w{}\"\n", made, layer);
    gradient = before;
  }
  return *graph::parse_graph(
      fmt::format("motley.graph/1\nname \"deep\"\nsize batch 1 4096\ninput %0: f32[batch, {}] "
                  "\"x\"\n{}tangent %{}: f32[]\n{}{}output loss %{}\n{}",
                  width, sources, layers + 1, forward, backward, loss, outputs),
      "deep");
}

TEST_F(CarryingTest, CarriesWhereAStepIsShorter) {
  graph_ = deep_graph(8, 1024);
  cluster_ = three_devices("kinds");
  for (cluster::Link& link : cluster_.links) link.bandwidth.value *= 10;
  batch_ = 12000;
  const auto without = plan("equal", plan::Carried());
  ASSERT_TRUE(without) << without.error().message;
  EXPECT_EQ(without->plan->carried, plan::Carried());
  const auto with = plan("equal");
  ASSERT_TRUE(with) << with.error().message;
  EXPECT_GT(with->plan->carried.exchanges, 0);
  EXPECT_LT(with->predicted_step.value, without->predicted_step.value * (1 - Carrying::kLeastGain));
  EXPECT_EQ(with->predicted_step, invented_->evaluator().price(*with->plan)->step);
  EXPECT_LE(with->lower_bound, with->predicted_step);
  EXPECT_THAT(with->why, Contains(HasSubstr("end in the next one: a step takes ")));
  EXPECT_TRUE(plan::verify_plan(*with->plan, invented_->model().hash, invented_->cluster()));
}

TEST_F(CarryingTest, TakesWhatSomebodyAskedFor) {
  const auto one = plan("equal", plan::Carried{1, 1});
  ASSERT_TRUE(one) << one.error().message;
  EXPECT_EQ(one->plan->carried, (plan::Carried{1, 1}));
  EXPECT_THAT(one->why, Contains(HasSubstr("behind them 1, end in the next one, as asked for")));
}

TEST_F(CarryingTest, NothingIsCarriedWhereAllGradientsComeFirst) {
  const auto clipped =
      plan("equal", std::nullopt, [](plan::Problem& problem) { problem.recipe.clip_norm = 1.0; });
  ASSERT_TRUE(clipped) << clipped.error().message;
  EXPECT_EQ(clipped->plan->carried, plan::Carried());
  EXPECT_THAT(clipped->why, Contains(HasSubstr("needs all gradients before the first update")));
}

// A plan of an earlier round is judged without what it carries, as bounds are of such plans.
TEST_F(CarryingTest, GoesOnFromAPlanThatCarries) {
  const auto first = plan("auto");
  ASSERT_TRUE(first && first->plan);
  const auto second = plan("auto", std::nullopt, [&](plan::Problem& problem) {
    problem.known = {{*first->plan, first->why}};
  });
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_LE(second->predicted_step, first->predicted_step);
}

// No step stops in a circle of exchanges, however a plan is drawn.
TEST_F(CarryingTest, DrawnPlansHavePrices) {
  int carried = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const auto drawn =
        plan("random", std::nullopt, [&](plan::Problem& problem) { problem.seed = seed; });
    ASSERT_TRUE(drawn) << seed << ": " << drawn.error().message;
    carried += drawn->plan && drawn->plan->carried.exchanges > 0 ? 1 : 0;
  }
  EXPECT_GT(carried, 10);
}

}  // namespace
}  // namespace motley::search
