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
/// scale before the backward pass. After a step with a gradient that is not finite, which changes
/// nothing, the scale is multiplied by `backoff`; after `interval` good ones in a row by `growth`.
struct LossScale {
  double initial = 65536;
  double growth = 2, backoff = 0.5;  ///< both 1: the scale stays
  std::int64_t interval = 2000;
  bool operator==(const LossScale&) const = default;
};

/// Parameters whose learning rate is another one.
struct ScaledRate {
  std::string pattern;
  double factor = 1;
  bool operator==(const ScaledRate&) const = default;
};

/// How gradients become new parameters. Patterns are those of a shell (`*.bias`, `h.[0-3].*`) and
/// match a parameter's name in the state_dict, or one of its tied names.
struct Recipe {
  Optimizer optimizer;
  std::vector<std::string> no_decay;  ///< parameters without weight decay
  std::vector<ScaledRate> lr_scales;
  std::vector<std::string> frozen;   ///< parameters that are not trained
  std::vector<std::string> adamw;    ///< of muon: matrices that adamw updates, as all but matrices
  std::optional<double> clip_norm;   ///< of all gradients together, at most
  std::optional<double> clip_value;  ///< of each element, at most
  std::optional<double> average;     ///< decay of an exponential average of the parameters
  std::optional<LossScale> loss_scale;
  bool master_weights = false;  ///< 16-bit parameters are updated in float32
  bool operator==(const Recipe&) const = default;

  /// Must all gradients be there before the first parameter changes?
  bool needs_factor() const { return clip_norm.has_value() || loss_scale.has_value(); }
};

/// The optimizer of one parameter, with its own kind, rate and decay.
Optimizer optimizer_of(const Recipe& recipe, const graph::Value& parameter);

/// Does the parameter have a master copy in float32?
bool has_master(const Recipe& recipe, const graph::Value& parameter);

/// Tensors of a parameter's size that are kept beside it, in all: for searches.
int count_states(const Recipe& recipe);

/// What of the recipe decides which instructions a step has, such as
/// "adamw-2-average-norm --freeze stem.*": part of the key of measured steps.
std::string print_update_kind(const Recipe& recipe);

/// Usage errors: a pattern that matches no parameter; a parameter that two rates match; nothing
/// left to train.
Result<void> verify_recipe(const Recipe& recipe, const graph::Graph& graph);

/// The graph without the gradients of frozen parameters.
graph::Graph freeze(graph::Graph graph, const std::vector<std::string>& patterns);

/// Without the optimizer, which stands beside it; what is as usual is left out.
Json recipe_to_json(const Recipe& recipe);
/// A recipe but for its optimizer.
Result<Recipe> recipe_from_json(const Json& json, const std::string& where);

}  // namespace motley::plan
