#include "motley/cli/options/recipe_options.h"

#include <gtest/gtest.h>

#include <cmath>

namespace motley::cli {
namespace {

std::string recipe_fault(const RecipeOptions& options) {
  const auto parsed = parse_recipe(options);
  return parsed ? "" : parsed.error().message;
}

TEST(ParseRecipe, DefaultsFollowTheKind) {
  RecipeOptions options;
  EXPECT_EQ(parse_recipe(options).value(), plan::Recipe());
  options.optimizer = "adam";
  EXPECT_EQ(parse_recipe(options)->optimizer.lr, 0.001);
  options.optimizer = "adamw";
  EXPECT_EQ(parse_recipe(options)->optimizer.weight_decay, 0.01);
  options.lr = 0.5;
  options.weight_decay = 0;
  EXPECT_EQ(parse_recipe(options)->optimizer.lr, 0.5);
  EXPECT_EQ(parse_recipe(options)->optimizer.weight_decay, 0);
  options.optimizer = "muon";
  EXPECT_TRUE(parse_recipe(options)->optimizer.nesterov);
}

TEST(ParseRecipe, TakesAll) {
  RecipeOptions options;
  options.no_decay = {"*.bias"};
  options.lr_scale = {"head=x=0.5"};
  options.freeze = {"stem.*"};
  options.clip_norm = 1;
  options.ema = 0.99;
  options.loss_scale = "dynamic:1024";
  options.master_weights = true;
  const plan::Recipe recipe = parse_recipe(options).value();
  EXPECT_EQ(recipe.no_decay, options.no_decay);
  EXPECT_EQ(recipe.lr_scales, (std::vector<plan::ScaledRate>{{"head=x", 0.5}}));
  EXPECT_EQ(recipe.frozen, options.freeze);
  EXPECT_EQ(recipe.clip_norm, 1);
  EXPECT_EQ(recipe.average, 0.99);
  EXPECT_EQ(recipe.loss_scale, plan::LossScale{.initial = 1024});
  EXPECT_TRUE(recipe.master_weights);
  options.loss_scale = "128";
  EXPECT_EQ(parse_recipe(options)->loss_scale,
            (plan::LossScale{.initial = 128, .growth = 1, .backoff = 1}));
}

TEST(ParseRecipe, WholeMessages) {
  EXPECT_EQ(recipe_fault({.optimizer = "adam", .momentum = 0.9}),
            "--momentum belongs to sgd, rmsprop, muon, found --optimizer adam");
  EXPECT_EQ(recipe_fault({.optimizer = "adam", .nesterov = true}),
            "--nesterov belongs to sgd, muon, found --optimizer adam");
  EXPECT_EQ(recipe_fault({.nesterov = true}), "--nesterov wants --momentum above 0");
  EXPECT_EQ(recipe_fault({.lr_scale = {"head"}}),
            "--lr-scale: found 'head', wanted PATTERN=FACTOR such as 'head.*=0.1'");
  EXPECT_EQ(recipe_fault({.lr_scale = {"head=inf"}}),
            "--lr-scale: found 'head=inf', wanted PATTERN=FACTOR such as 'head.*=0.1'");
  EXPECT_EQ(recipe_fault({.adamw = {"head"}}), "--adamw belongs to --optimizer muon, found sgd");
  EXPECT_EQ(recipe_fault({.clip_norm = 0.0}), "--clip-norm: found 0.0, wanted a number above 0");
  EXPECT_EQ(recipe_fault({.clip_norm = HUGE_VAL}),
            "--clip-norm: found inf, wanted a number above 0");
  EXPECT_EQ(recipe_fault({.clip_norm = 1.0, .clip_value = 1.0}),
            "--clip-norm and --clip-value: give one of them");
  EXPECT_EQ(recipe_fault({.ema = 1.0}),
            "--ema: found 1.0, wanted a decay above 0 and below 1, such as 0.999");
  EXPECT_EQ(recipe_fault({.loss_scale = "big"}),
            "--loss-scale: found 'big', wanted dynamic, dynamic:INITIAL or a number above 0");
  EXPECT_EQ(recipe_fault({.loss_scale = "dynamic:inf"}),
            "--loss-scale: found 'dynamic:inf', wanted dynamic, dynamic:INITIAL or a number above "
            "0");
}

}  // namespace
}  // namespace motley::cli
