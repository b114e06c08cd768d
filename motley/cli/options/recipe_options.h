#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/cli/context/verb.h"
#include "motley/plan/recipe.h"

namespace motley::cli {

inline constexpr const char* kRecipeGroup = "Recipe";

/// The recipe as flags. Absent flags have the optimizer's usual values.
struct RecipeOptions {
  std::string optimizer = "sgd";
  std::optional<double> lr, momentum, weight_decay, beta1, beta2, eps;
  bool nesterov = false;
  std::vector<std::string> no_decay, lr_scale, freeze, adamw;  ///< patterns
  std::optional<double> clip_norm, clip_value, ema;
  std::string loss_scale;
  bool master_weights = false;
};
std::vector<Flag> recipe_flags(RecipeOptions& options);

/// Parses the flags. Usage errors name the flag, its value and what is wanted.
Result<plan::Recipe> parse_recipe(const RecipeOptions& options);

}  // namespace motley::cli
