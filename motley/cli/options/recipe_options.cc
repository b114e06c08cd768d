#include "motley/cli/options/recipe_options.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "motley/base/text.h"

namespace motley::cli {
namespace {

constexpr auto kHidden = Flag::Default::kHidden;

tl::unexpected<Error> refuse_constant(std::string_view flag, const RecipeOptions& options) {
  std::vector<std::string> users;
  for (const std::string& name : plan::optimizer_names())
    if (plan::uses_constant(*plan::parse_optimizer_kind(name), flag)) users.push_back(name);
  return usage_error("cli.optimizer", fmt::format("--{} belongs to {}, found --optimizer {}", flag,
                                                  join(users, ", "), options.optimizer));
}

Result<plan::Optimizer> parse_optimizer(const RecipeOptions& options) {
  MOTLEY_ASSIGN(const plan::OptimizerKind kind, plan::parse_optimizer_kind(options.optimizer));
  plan::Optimizer optimizer = plan::default_optimizer(kind);
  optimizer.lr = options.lr.value_or(optimizer.lr);
  optimizer.weight_decay = options.weight_decay.value_or(optimizer.weight_decay);
  const std::array<std::pair<std::string_view, std::pair<const std::optional<double>*, double*>>, 4>
      constants = {{{"momentum", {&options.momentum, &optimizer.momentum}},
                    {"beta1", {&options.beta1, &optimizer.beta1}},
                    {"beta2", {&options.beta2, &optimizer.beta2}},
                    {"eps", {&options.eps, &optimizer.eps}}}};
  for (const auto& [name, places] : constants) {
    const auto [given, into] = places;
    if (!*given) continue;
    if (!plan::uses_constant(kind, name)) return refuse_constant(name, options);
    *into = **given;
  }
  if (options.nesterov && !plan::uses_constant(kind, "nesterov"))
    return refuse_constant("nesterov", options);
  optimizer.nesterov = optimizer.nesterov || options.nesterov;
  if (optimizer.nesterov && optimizer.momentum <= 0)
    return usage_error("cli.optimizer", "--nesterov wants --momentum above 0");
  return optimizer;
}

Result<std::vector<plan::ScaledRate>> parse_rates(const std::vector<std::string>& texts) {
  std::vector<plan::ScaledRate> rates;
  for (const std::string& text : texts) {
    const std::size_t at = text.rfind('=');
    const auto factor = at == std::string::npos ? std::nullopt : find_float(text.substr(at + 1));
    if (at == 0 || !factor || !(*factor >= 0) || !std::isfinite(*factor))
      return usage_error("cli.lr-scale",
                         fmt::format("--lr-scale: found '{}', wanted PATTERN=FACTOR such as "
                                     "'head.*=0.1'",
                                     text));
    rates.push_back({text.substr(0, at), *factor});
  }
  return rates;
}

Result<std::optional<plan::LossScale>> parse_loss_scale(const std::string& text) {
  if (text.empty()) return std::optional<plan::LossScale>();
  plan::LossScale scale;
  if (text == "dynamic") return std::optional(scale);
  const bool is_dynamic = text.starts_with("dynamic:");
  const auto value = find_float(is_dynamic ? text.substr(8) : text);
  if (!value || !(*value > 0) || !std::isfinite(*value))
    return usage_error("cli.loss-scale",
                       fmt::format("--loss-scale: found '{}', wanted dynamic, dynamic:INITIAL or "
                                   "a number above 0",
                                   text));
  scale.initial = *value;
  if (!is_dynamic) scale.growth = scale.backoff = 1;
  return std::optional(scale);
}

Result<void> check_above(std::string_view flag, const std::optional<double>& value) {
  if (!value || (*value > 0 && std::isfinite(*value))) return {};
  return usage_error("cli.recipe", fmt::format("--{}: found {}, wanted a number above 0", flag,
                                               print_float(*value)));
}

}  // namespace

std::vector<Flag> recipe_flags(RecipeOptions& o) {
  return {
      {"--optimizer", &o.optimizer, join(plan::optimizer_names(), ", "), kShown, kRecipeGroup},
      {"--lr", &o.lr, "learning rate (default: PyTorch's)", kHidden, kRecipeGroup},
      {"--momentum", &o.momentum, "momentum of sgd, rmsprop and muon", kHidden, kRecipeGroup},
      {"--nesterov", &o.nesterov, "Nesterov momentum of sgd and muon", kHidden, kRecipeGroup},
      {"--weight-decay", &o.weight_decay, "weight decay (default: PyTorch's)", kHidden,
       kRecipeGroup},
      {"--beta1", &o.beta1, "beta1 of adam, adamw, lion, lamb", kHidden, kRecipeGroup},
      {"--beta2", &o.beta2, "beta2 of the same; alpha of rmsprop", kHidden, kRecipeGroup},
      {"--eps", &o.eps, "epsilon of all but sgd and lion", kHidden, kRecipeGroup},
      {"--no-decay", &o.no_decay, "parameters without weight decay: '*.bias' (repeatable)", kHidden,
       kRecipeGroup},
      {"--lr-scale", &o.lr_scale, "parameters with a scaled rate: 'head.*=0.1' (repeatable)",
       kHidden, kRecipeGroup},
      {"--freeze", &o.freeze, "parameters that are not trained: 'stem.*' (repeatable)", kHidden,
       kRecipeGroup},
      {"--adamw", &o.adamw,
       "with muon: matrices to update by adamw, as all other parameters are (repeatable)", kHidden,
       kRecipeGroup},
      {"--clip-norm", &o.clip_norm, "largest norm of all gradients", kHidden, kRecipeGroup},
      {"--clip-value", &o.clip_value, "largest element of a gradient", kHidden, kRecipeGroup},
      {"--ema", &o.ema, "decay of an exponential moving average of the parameters: 0.999", kHidden,
       kRecipeGroup},
      {"--loss-scale", &o.loss_scale,
       "loss scale for float16: dynamic, dynamic:INITIAL or a number", kHidden, kRecipeGroup},
      {"--master-weights", &o.master_weights, "update 16-bit parameters in float32", kHidden,
       kRecipeGroup},
  };
}

Result<plan::Recipe> parse_recipe(const RecipeOptions& options) {
  plan::Recipe recipe;
  MOTLEY_ASSIGN(recipe.optimizer, parse_optimizer(options));
  MOTLEY_ASSIGN(recipe.lr_scales, parse_rates(options.lr_scale));
  MOTLEY_ASSIGN(recipe.loss_scale, parse_loss_scale(options.loss_scale));
  MOTLEY_RETURN_IF_ERROR(check_above("clip-norm", options.clip_norm));
  MOTLEY_RETURN_IF_ERROR(check_above("clip-value", options.clip_value));
  if (options.clip_norm && options.clip_value)
    return usage_error("cli.recipe", "--clip-norm and --clip-value: give one of them");
  if (options.ema && !(*options.ema > 0 && *options.ema < 1))
    return usage_error("cli.recipe", fmt::format("--ema: found {}, wanted a decay above 0 and "
                                                 "below 1, such as 0.999",
                                                 print_float(*options.ema)));
  if (!options.adamw.empty() && recipe.optimizer.kind != plan::OptimizerKind::kMuon)
    return usage_error("cli.recipe", fmt::format("--adamw belongs to --optimizer muon, found {}",
                                                 options.optimizer));
  recipe.no_decay = options.no_decay;
  recipe.frozen = options.freeze;
  recipe.adamw = options.adamw;
  recipe.clip_norm = options.clip_norm;
  recipe.clip_value = options.clip_value;
  recipe.average = options.ema;
  recipe.master_weights = options.master_weights;
  return recipe;
}

}  // namespace motley::cli
