#pragma once

#include <string>
#include <string_view>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"

namespace motley::plan {

enum class OptimizerKind { kSgd, kAdam, kAdamW };

/// Optimizer and its constants, with PyTorch's names and defaults (weight_decay: 0.01 for adamw).
struct Optimizer {
  OptimizerKind kind = OptimizerKind::kSgd;
  double lr = 0.01;
  double momentum = 0.0;  ///< sgd
  bool nesterov = false;  ///< sgd
  double weight_decay = 0.0;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  ///< adam, adamw

  bool operator==(const Optimizer&) const = default;
  /// State tensors a parameter needs, each of the parameter's size: 0, 1 (momentum) or 2 (moments).
  int states() const;
};

std::string_view optimizer_name(OptimizerKind kind);
Result<OptimizerKind> parse_optimizer_kind(std::string_view name);
Json optimizer_to_json(const Optimizer& optimizer);
Result<Optimizer> optimizer_from_json(const Json& json, const std::string& where);

}  // namespace motley::plan
