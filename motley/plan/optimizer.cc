#include "motley/plan/optimizer.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "motley/base/json.h"
#include "motley/base/text.h"

namespace motley::plan {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"sgd", "adam", "adamw"};

/// The half-open interval a constant must lie in.
struct Limits {
  double least = 0.0;
  double below = HUGE_VAL;
};

Result<double> read_constant(JsonObject& object, const std::string& key, Limits limits) {
  MOTLEY_ASSIGN(const double value, object.number(key));
  if (value >= limits.least && value < limits.below) return value;
  const std::string wanted = limits.below == HUGE_VAL ? fmt::format("at least {}", limits.least)
                                                      : fmt::format("at least {} and below {}",
                                                                    limits.least, limits.below);
  return usage_error("plan.optimizer",
                     fmt::format("{}: key '{}': found {}, wanted {}", object.where(), key,
                                 print_float(value), wanted));
}

}  // namespace

int Optimizer::states() const {
  if (kind == OptimizerKind::kSgd) return momentum != 0.0 ? 1 : 0;
  return 2;
}

std::string_view optimizer_name(OptimizerKind kind) {
  return kNames[static_cast<std::size_t>(kind)];
}

Result<OptimizerKind> parse_optimizer_kind(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<OptimizerKind>(i);
  }
  const std::vector<std::string> known(kNames.begin(), kNames.end());
  return usage_error("plan.optimizer",
                     fmt::format("unknown optimizer '{}', wanted one of {}{}", name,
                                 join(known, " "), suggestion_clause(name, known)));
}

Json optimizer_to_json(const Optimizer& optimizer) {
  Json json = Json::object();
  json["kind"] = optimizer_name(optimizer.kind);
  json["lr"] = optimizer.lr;
  json["momentum"] = optimizer.momentum;
  json["nesterov"] = optimizer.nesterov;
  json["weight_decay"] = optimizer.weight_decay;
  json["beta1"] = optimizer.beta1;
  json["beta2"] = optimizer.beta2;
  json["eps"] = optimizer.eps;
  return json;
}

Result<Optimizer> optimizer_from_json(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(auto object, JsonObject::make(json, where));
  Optimizer optimizer;
  MOTLEY_ASSIGN(const std::string kind, object.string("kind"));
  const auto parsed = parse_optimizer_kind(kind);
  if (!parsed) return with_context(where, parsed.error());
  optimizer.kind = *parsed;
  MOTLEY_ASSIGN(optimizer.lr, read_constant(object, "lr", {}));
  MOTLEY_ASSIGN(optimizer.momentum, read_constant(object, "momentum", {}));
  MOTLEY_ASSIGN(optimizer.nesterov, object.boolean("nesterov"));
  MOTLEY_ASSIGN(optimizer.weight_decay, read_constant(object, "weight_decay", {}));
  MOTLEY_ASSIGN(optimizer.beta1, read_constant(object, "beta1", {.below = 1.0}));
  MOTLEY_ASSIGN(optimizer.beta2, read_constant(object, "beta2", {.below = 1.0}));
  MOTLEY_ASSIGN(optimizer.eps, read_constant(object, "eps", {}));
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  return optimizer;
}

}  // namespace motley::plan
