#include "motley/plan/recipe.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "motley/base/json.h"

namespace motley::plan {
namespace {

/// Two parameters with gradients; only names and dimensions matter here.
graph::Graph layer() {
  graph::Graph graph;
  graph.name = "Net";
  const auto add = [&](graph::ValueRole role, const std::string& name, std::size_t dims) {
    graph::Value value;
    value.role = role;
    value.name = name;
    for (std::size_t d = 0; d < dims; ++d) value.shape.push_back(graph::SizeExpr(2));
    graph.values.push_back(value);
    return ValueId(static_cast<std::int64_t>(graph.values.size()) - 1);
  };
  const ValueId weight = add(graph::ValueRole::kParameter, "fc.weight", 2);
  const ValueId bias = add(graph::ValueRole::kParameter, "fc.bias", 1);
  for (const ValueId of : {weight, bias})
    graph.outputs.push_back(
        {graph::OutputKind::kGradient, add(graph::ValueRole::kActivation, "", 1), of});
  return graph;
}

const graph::Value& named(const graph::Graph& graph, const std::string& name) {
  return *std::find_if(graph.values.begin(), graph.values.end(),
                       [&](const graph::Value& value) { return value.name == name; });
}

TEST(Recipe, GivesParametersTheirOwnRateAndDecay) {
  const graph::Graph graph = layer();
  Recipe recipe;
  recipe.optimizer = {.kind = OptimizerKind::kAdamW, .lr = 0.1, .weight_decay = 0.01};
  recipe.no_decay = {"*.bias"};
  recipe.lr_scales = {{"*.weight", 0.5}};
  EXPECT_EQ(optimizer_of(recipe, named(graph, "fc.weight")).lr, 0.05);
  EXPECT_EQ(optimizer_of(recipe, named(graph, "fc.weight")).weight_decay, 0.01);
  EXPECT_EQ(optimizer_of(recipe, named(graph, "fc.bias")).lr, 0.1);
  EXPECT_EQ(optimizer_of(recipe, named(graph, "fc.bias")).weight_decay, 0);
}

TEST(Recipe, MuonLeavesAllButMatricesToAdamW) {
  const graph::Graph graph = layer();
  Recipe recipe;
  recipe.optimizer = default_optimizer(OptimizerKind::kMuon);
  EXPECT_EQ(optimizer_of(recipe, named(graph, "fc.weight")).kind, OptimizerKind::kMuon);
  EXPECT_EQ(optimizer_of(recipe, named(graph, "fc.bias")).kind, OptimizerKind::kAdamW);
  recipe.adamw = {"fc.*"};
  EXPECT_EQ(optimizer_of(recipe, named(graph, "fc.weight")).kind, OptimizerKind::kAdamW);
}

TEST(Recipe, UpdatesOfOtherInstructionsAreOfAnotherKind) {
  EXPECT_EQ(print_update_kind({.optimizer = {.momentum = 0.9}}), "sgd-1");
  EXPECT_EQ(print_update_kind({.average = 0.999}), "sgd-0-average");
  const Recipe recipe{.optimizer = default_optimizer(OptimizerKind::kAdamW),
                      .no_decay = {"*.bias"},
                      .lr_scales = {{"head.*", 0.5}},
                      .frozen = {"stem.*"},
                      .clip_norm = 1,
                      .loss_scale = LossScale(),
                      .master_weights = true};
  EXPECT_EQ(print_update_kind(recipe),
            "adamw-2-master-norm-scaled --no-decay *.bias --lr-scale head.* --freeze stem.*");
}

TEST(Recipe, FreezesByPattern) {
  const graph::Graph frozen = freeze(layer(), {"*.bias"});
  ASSERT_EQ(frozen.outputs.size(), 1U);
  EXPECT_EQ(frozen.value(frozen.outputs[0].of).name, "fc.weight");
  EXPECT_TRUE(named(frozen, "fc.bias").frozen);
  EXPECT_FALSE(named(frozen, "fc.weight").frozen);
}

std::string fault(const Recipe& recipe) {
  const auto verified = verify_recipe(recipe, layer());
  return verified ? "" : verified.error().message;
}

TEST(Recipe, WholeMessages) {
  EXPECT_EQ(fault({}), "");
  EXPECT_EQ(fault({.no_decay = {"*.bais"}}),
            "--no-decay '*.bais': matches no parameter of Net; its parameters have names such as "
            "'fc.weight'");
  EXPECT_EQ(fault({.lr_scales = {{"fc.*", 0.5}, {"*.bias", 2}}}),
            "--lr-scale: both 'fc.*=0.5' and '*.bias=2.0' match parameter 'fc.bias'; give it one");
  EXPECT_EQ(fault({.frozen = {"fc.*"}}), "--freeze 'fc.*': leaves no parameter of Net to train");
}

TEST(Recipe, JsonRoundTrip) {
  Recipe recipe;
  recipe.no_decay = {"*.bias", "norm*"};
  recipe.lr_scales = {{"head.*", 0.1}, {"stem.*", 2}};
  recipe.frozen = {"embed.*"};
  recipe.adamw = {"head"};
  recipe.clip_norm = 1.5;
  recipe.average = 0.999;
  recipe.loss_scale = LossScale{.initial = 1024, .interval = 10};
  recipe.master_weights = true;
  const auto parsed = recipe_from_json(recipe_to_json(recipe), "r");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(*parsed, recipe);
  EXPECT_TRUE(recipe_to_json(Recipe()).empty());
}

std::string json_fault(const std::string& text) {
  const auto parsed = recipe_from_json(parse_json(text, "r").value(), "r");
  return parsed ? "" : parsed.error().message;
}

TEST(Recipe, JsonMessages) {
  EXPECT_EQ(json_fault(R"({"clip_norm": 0})"),
            "r: key 'clip_norm': found 0.0, wanted a number above 0");
  EXPECT_EQ(json_fault(R"({"average": 1})"),
            "r: key 'average': found 1.0, wanted a number above 0 and below 1");
  EXPECT_EQ(json_fault(R"({"freeze": "x"})"),
            "r: key 'freeze': found a string, wanted a list of strings");
  EXPECT_EQ(json_fault(R"({"lr_scale": {"x": -1}})"),
            "r: key 'lr_scale': wanted a number from 0 on for 'x'");
  EXPECT_EQ(json_fault(R"({"clip": 1})"), "r: unknown key 'clip'");
}

}  // namespace
}  // namespace motley::plan
