#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"
#include "motley/graph/graph.h"
#include "motley/plan/optimizer.h"

namespace motley::plan {

/// Loss scaling for 16-bit gradients, as torch.amp.GradScaler does it: the loss is multiplied by a
/// scale before the backward pass. A step with a non-finite gradient changes nothing and multiplies
/// the scale by `backoff`; `interval` good steps in a row multiply it by `growth`.
struct LossScale {
  double initial = 65536;
  double growth = 2, backoff = 0.5;  ///< both 1: the scale is constant
  std::int64_t interval = 2000;
  bool operator==(const LossScale&) const = default;
};

/// Parameters with their own factor on the learning rate.
struct ScaledRate {
  std::string pattern;
  double factor = 1;
  bool operator==(const ScaledRate&) const = default;
};

/// How gradients become new parameters. Patterns are shell patterns (`*.bias`, `h.[0-3].*`) that
/// match a parameter's state_dict name or one of its tied names.
struct Recipe {
  Optimizer optimizer;
  std::vector<std::string> no_decay;  ///< parameters without weight decay
  std::vector<ScaledRate> lr_scales;
  std::vector<std::string> frozen;   ///< parameters that are not trained
  std::vector<std::string> adamw;    ///< muon: matrices that adamw updates, like all other shapes
  std::optional<double> clip_norm;   ///< maximum norm of all gradients together
  std::optional<double> clip_value;  ///< maximum of each element
  std::optional<double> average;     ///< decay of an exponential average of the parameters
  std::optional<LossScale> loss_scale;
  bool master_weights = false;  ///< 16-bit parameters are updated in float32
  bool operator==(const Recipe&) const = default;

  /// Returns whether all gradients are needed before the first parameter changes.
  bool needs_factor() const { return clip_norm.has_value() || loss_scale.has_value(); }
};

/// Does a shell pattern match the parameter's name or one of its tied names?
bool matches_parameter(const std::string& pattern, const graph::Value& parameter);

/// Returns the optimizer of one parameter, with its own kind, rate and decay.
Optimizer optimizer_of(const Recipe& recipe, const graph::Value& parameter);

bool has_master(const Recipe& recipe, const graph::Value& parameter);

/// Returns how many tensors of a parameter's size are kept beside it; for searches.
int count_states(const Recipe& recipe);

/// Returns the settings that decide which instructions a step has, such as "adamw-2-average-norm
/// --freeze stem.*". It is part of the key of measured steps.
std::string print_update_kind(const Recipe& recipe);

/// Usage errors: a pattern without a parameter; two rates for one; nothing left to train.
Result<void> verify_recipe(const Recipe& recipe, const graph::Graph& graph);

/// Returns the graph without the gradients of frozen parameters.
graph::Graph freeze(graph::Graph graph, const std::vector<std::string>& patterns);

/// Writes the recipe except default values and its optimizer, which is written separately.
Json recipe_to_json(const Recipe& recipe);
/// Parses a recipe without its optimizer.
Result<Recipe> recipe_from_json(const Json& json, const std::string& where);

}  // namespace motley::plan
