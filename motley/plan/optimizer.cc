#include "motley/plan/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "motley/base/json.h"
#include "motley/base/text.h"

namespace motley::plan {
namespace {

/// A kind's name, defaults and the constants that it uses, besides lr and weight_decay.
struct KindRow {
  std::string_view name;
  Optimizer defaults;
  std::string_view uses;  // words
};

using Kind = OptimizerKind;
const std::array<KindRow, 9> kKinds = {{
    {"sgd", {.kind = Kind::kSgd}, "momentum nesterov"},
    {"adam", {.kind = Kind::kAdam, .lr = 1e-3}, "beta1 beta2 eps"},
    {"adamw", {.kind = Kind::kAdamW, .lr = 1e-3, .weight_decay = 0.01}, "beta1 beta2 eps"},
    {"adagrad", {.kind = Kind::kAdagrad, .eps = 1e-10}, "eps"},
    {"rmsprop", {.kind = Kind::kRmsprop, .beta2 = 0.99}, "momentum beta2 eps"},
    {"lion", {.kind = Kind::kLion, .lr = 1e-4, .beta2 = 0.99}, "beta1 beta2"},
    {"lamb", {.kind = Kind::kLamb, .lr = 1e-3, .eps = 1e-6}, "beta1 beta2 eps"},
    {"adafactor", {.kind = Kind::kAdafactor, .eps = 1e-3}, "eps"},
    {"muon",
     {.kind = Kind::kMuon, .lr = 1e-3, .momentum = 0.95, .nesterov = true, .weight_decay = 0.1},
     "momentum nesterov beta1 beta2 eps"},
}};

const KindRow& row_of(OptimizerKind kind) { return kKinds[static_cast<std::size_t>(kind)]; }

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

Optimizer default_optimizer(OptimizerKind kind) { return row_of(kind).defaults; }

std::string_view optimizer_name(OptimizerKind kind) { return row_of(kind).name; }

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const KindRow& row : kKinds) names.emplace_back(row.name);
  return names;
}

Result<OptimizerKind> parse_optimizer_kind(std::string_view name) {
  for (const KindRow& row : kKinds)
    if (row.name == name) return row.defaults.kind;
  const std::vector<std::string> known = optimizer_names();
  return usage_error("plan.optimizer",
                     fmt::format("unknown optimizer '{}', wanted one of {}{}", name,
                                 join(known, " "), suggestion_clause(name, known)));
}

bool uses_constant(OptimizerKind kind, std::string_view constant) {
  const std::vector<std::string_view> words = split(row_of(kind).uses, ' ');
  return std::find(words.begin(), words.end(), constant) != words.end();
}

bool needs_whole(OptimizerKind kind) { return kind == Kind::kAdafactor || kind == Kind::kMuon; }

std::vector<StateSpec> find_states(const Optimizer& optimizer, std::size_t dims) {
  using Shape = StateSpec::Shape;
  switch (optimizer.kind) {
    case Kind::kSgd:
      if (optimizer.momentum == 0.0) return {};
      return {{"momentum"}};
    case Kind::kAdam:
    case Kind::kAdamW:
    case Kind::kLamb:
      return {{"exp_avg"}, {"exp_avg_sq"}};
    case Kind::kAdagrad:
      return {{"sum"}};
    case Kind::kRmsprop:
      if (optimizer.momentum == 0.0) return {{"square_avg"}};
      return {{"square_avg"}, {"momentum"}};
    case Kind::kLion:
      return {{"exp_avg"}};
    case Kind::kAdafactor:
      if (dims < 2) return {{"variance", Shape::kWhole}};
      return {{"row_var", Shape::kRows}, {"col_var", Shape::kColumns}};
    case Kind::kMuon:
      return {{"momentum"}};
  }
  return {};
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
