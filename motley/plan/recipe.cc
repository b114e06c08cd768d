#include "motley/plan/recipe.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "motley/base/json.h"
#include "motley/base/text.h"

namespace motley::plan {
namespace {

bool matches_name(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

}  // namespace

bool matches_parameter(const std::string& pattern, const graph::Value& parameter) {
  return matches_name(pattern, parameter.name) ||
         std::any_of(parameter.tied.begin(), parameter.tied.end(),
                     [&](const std::string& name) { return matches_name(pattern, name); });
}

namespace {

bool any_matches(const std::vector<std::string>& patterns, const graph::Value& parameter) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return matches_parameter(pattern, parameter);
  });
}

struct GivenPattern {
  std::string_view flag;
  std::string pattern;
};

std::vector<GivenPattern> given_patterns(const Recipe& recipe) {
  std::vector<GivenPattern> given;
  for (const std::string& pattern : recipe.no_decay) given.push_back({"--no-decay", pattern});
  for (const ScaledRate& rate : recipe.lr_scales) given.push_back({"--lr-scale", rate.pattern});
  for (const std::string& pattern : recipe.frozen) given.push_back({"--freeze", pattern});
  for (const std::string& pattern : recipe.adamw) given.push_back({"--adamw", pattern});
  return given;
}

std::vector<const graph::Value*> parameters_of(const graph::Graph& graph) {
  std::vector<const graph::Value*> parameters;
  for (const ValueId id : graph::values_with_role(graph, graph::ValueRole::kParameter))
    parameters.push_back(&graph.value(id));
  return parameters;
}

Result<void> check_patterns_match(const Recipe& recipe, const graph::Graph& graph) {
  const auto parameters = parameters_of(graph);
  for (const auto& [flag, pattern] : given_patterns(recipe)) {
    if (std::any_of(parameters.begin(), parameters.end(), [&](const graph::Value* parameter) {
          return matches_parameter(pattern, *parameter);
        }))
      continue;
    std::vector<std::string> names;
    for (const graph::Value* parameter : parameters) names.push_back(parameter->name);
    return usage_error(
        "plan.pattern",
        fmt::format("{} '{}': matches no parameter of {}; its parameters have names such as '{}'{}",
                    flag, pattern, graph.name, names.empty() ? "" : names.front(),
                    suggestion_clause(pattern, names)));
  }
  return {};
}

Result<void> check_rates_differ(const Recipe& recipe, const graph::Graph& graph) {
  for (const graph::Value* parameter : parameters_of(graph)) {
    const ScaledRate* first = nullptr;
    for (const ScaledRate& rate : recipe.lr_scales) {
      if (!matches_parameter(rate.pattern, *parameter)) continue;
      if (first != nullptr)
        return usage_error(
            "plan.pattern",
            fmt::format("--lr-scale: both '{}={}' and '{}={}' match parameter '{}'; give it one",
                        first->pattern, print_float(first->factor), rate.pattern,
                        print_float(rate.factor), parameter->name));
      first = &rate;
    }
  }
  return {};
}

bool is_half(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }

class Members {
 public:
  explicit Members(JsonObject& object) : object_(object) {}

  Result<void> number(const std::string& key, std::optional<double>& into, double above,
                      double below) {
    if (!object_.has(key)) return {};
    MOTLEY_ASSIGN(const double value, object_.number(key));
    if (!(value > above && value < below))
      return usage_error("plan.recipe",
                         fmt::format("{}: key '{}': found {}, wanted a number above {}{}",
                                     object_.where(), key, print_float(value), above,
                                     below == HUGE_VAL ? "" : fmt::format(" and below {}", below)));
    into = value;
    return {};
  }

  Result<void> words(const std::string& key, std::vector<std::string>& into) {
    if (!object_.has(key)) return {};
    MOTLEY_ASSIGN(into, object_.strings(key));
    return {};
  }

  Result<void> rates(const std::string& key, std::vector<ScaledRate>& into) {
    if (!object_.has(key)) return {};
    MOTLEY_ASSIGN(const Json* map, object_.member(key));
    if (!map->is_object()) return wanted(key, "an object of patterns and numbers");
    for (const auto& [pattern, factor] : map->items()) {
      if (!factor.is_number() || factor.get<double>() < 0)
        return wanted(key, fmt::format("a number from 0 on for '{}'", pattern));
      into.push_back({pattern, factor.get<double>()});
    }
    return {};
  }

 private:
  tl::unexpected<Error> wanted(const std::string& key, const std::string& what) const {
    return usage_error("plan.recipe",
                       fmt::format("{}: key '{}': wanted {}", object_.where(), key, what));
  }
  JsonObject& object_;
};

Result<LossScale> loss_scale_from_json(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(auto object, JsonObject::make(json, where));
  LossScale scale;
  MOTLEY_ASSIGN(scale.initial, object.number("initial"));
  MOTLEY_ASSIGN(scale.growth, object.number("growth"));
  MOTLEY_ASSIGN(scale.backoff, object.number("backoff"));
  MOTLEY_ASSIGN(scale.interval, object.integer("interval"));
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  if (!(scale.initial > 0 && scale.growth >= 1 && scale.backoff > 0 && scale.backoff <= 1 &&
        scale.interval >= 1))
    return usage_error("plan.recipe",
                       where +
                           ": wanted initial above 0, growth from 1 on, backoff above 0 and at "
                           "most 1, interval from 1 on");
  return scale;
}

}  // namespace

Optimizer optimizer_of(const Recipe& recipe, const graph::Value& parameter) {
  Optimizer found = recipe.optimizer;
  if (found.kind == OptimizerKind::kMuon &&
      (parameter.shape.size() != 2 || any_matches(recipe.adamw, parameter))) {
    found.kind = OptimizerKind::kAdamW;
    found.momentum = 0;
    found.nesterov = false;
  }
  if (any_matches(recipe.no_decay, parameter)) found.weight_decay = 0;
  for (const ScaledRate& rate : recipe.lr_scales)
    if (matches_parameter(rate.pattern, parameter)) found.lr *= rate.factor;
  return found;
}

bool has_master(const Recipe& recipe, const graph::Value& parameter) {
  return recipe.master_weights && is_half(parameter.dtype);
}

int count_states(const Recipe& recipe) {
  int count = 0;
  for (const StateSpec& state : find_states(recipe.optimizer, 2))
    count += state.shape == StateSpec::Shape::kParameter ? 1 : 0;
  // A master copy of a 16-bit parameter is twice as large.
  return count + (recipe.average ? 1 : 0) + (recipe.master_weights ? 2 : 0);
}

std::string print_update_kind(const Recipe& recipe) {
  std::string text = fmt::format("{}-{}", optimizer_name(recipe.optimizer.kind),
                                 find_states(recipe.optimizer, 2).size());
  if (recipe.average) text += "-average";
  if (recipe.master_weights) text += "-master";
  if (recipe.clip_norm) text += "-norm";
  if (recipe.clip_value) text += "-value";
  if (recipe.loss_scale) text += "-scaled";
  for (const auto& [flag, pattern] : given_patterns(recipe))
    text += fmt::format(" {} {}", flag, pattern);
  return text;
}

Result<void> verify_recipe(const Recipe& recipe, const graph::Graph& graph) {
  MOTLEY_RETURN_IF_ERROR(check_patterns_match(recipe, graph));
  MOTLEY_RETURN_IF_ERROR(check_rates_differ(recipe, graph));
  const bool is_trained =
      std::any_of(graph.outputs.begin(), graph.outputs.end(), [&](const graph::Output& output) {
        return output.kind == graph::OutputKind::kGradient &&
               !any_matches(recipe.frozen, graph.value(output.of));
      });
  if (is_trained || recipe.frozen.empty()) return {};
  return usage_error("plan.pattern",
                     fmt::format("--freeze '{}': leaves no parameter of {} to train",
                                 join(recipe.frozen, "' '"), graph.name));
}

graph::Graph freeze(graph::Graph graph, const std::vector<std::string>& patterns) {
  if (patterns.empty()) return graph;
  std::erase_if(graph.outputs, [&](const graph::Output& output) {
    return output.kind == graph::OutputKind::kGradient &&
           any_matches(patterns, graph.value(output.of));
  });
  for (graph::Value& value : graph.values)
    if (value.role == graph::ValueRole::kParameter && any_matches(patterns, value))
      value.frozen = true;
  return graph;
}

Json recipe_to_json(const Recipe& recipe) {
  Json json = Json::object();
  if (!recipe.no_decay.empty()) json["no_decay"] = recipe.no_decay;
  for (const ScaledRate& rate : recipe.lr_scales) json["lr_scale"][rate.pattern] = rate.factor;
  if (!recipe.frozen.empty()) json["freeze"] = recipe.frozen;
  if (!recipe.adamw.empty()) json["adamw"] = recipe.adamw;
  if (recipe.clip_norm) json["clip_norm"] = *recipe.clip_norm;
  if (recipe.clip_value) json["clip_value"] = *recipe.clip_value;
  if (recipe.average) json["average"] = *recipe.average;
  if (recipe.loss_scale)
    json["loss_scale"] = {{"initial", recipe.loss_scale->initial},
                          {"growth", recipe.loss_scale->growth},
                          {"backoff", recipe.loss_scale->backoff},
                          {"interval", recipe.loss_scale->interval}};
  if (recipe.master_weights) json["master_weights"] = true;
  return json;
}

Result<Recipe> recipe_from_json(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(auto object, JsonObject::make(json, where));
  Recipe recipe;
  Members members(object);
  MOTLEY_RETURN_IF_ERROR(members.words("no_decay", recipe.no_decay));
  MOTLEY_RETURN_IF_ERROR(members.rates("lr_scale", recipe.lr_scales));
  MOTLEY_RETURN_IF_ERROR(members.words("freeze", recipe.frozen));
  MOTLEY_RETURN_IF_ERROR(members.words("adamw", recipe.adamw));
  MOTLEY_RETURN_IF_ERROR(members.number("clip_norm", recipe.clip_norm, 0, HUGE_VAL));
  MOTLEY_RETURN_IF_ERROR(members.number("clip_value", recipe.clip_value, 0, HUGE_VAL));
  MOTLEY_RETURN_IF_ERROR(members.number("average", recipe.average, 0, 1));
  if (object.has("loss_scale")) {
    MOTLEY_ASSIGN(const Json* scale, object.member("loss_scale"));
    MOTLEY_ASSIGN(recipe.loss_scale, loss_scale_from_json(*scale, where + ": loss_scale"));
  }
  if (object.has("master_weights")) {
    MOTLEY_ASSIGN(recipe.master_weights, object.boolean("master_weights"));
  }
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  return recipe;
}

}  // namespace motley::plan
