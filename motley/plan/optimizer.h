#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"

namespace motley::plan {

enum class OptimizerKind {
  kSgd,
  kAdam,
  kAdamW,
  kAdagrad,
  kRmsprop,
  kLion,       ///< Chen et al. 2023
  kLamb,       ///< You et al. 2020
  kAdafactor,  ///< Shazeer and Stern 2018, as torch.optim.Adafactor
  kMuon,       ///< Jordan et al. 2024, as torch.optim.Muon; for matrices
};

/// An optimizer and its constants, with PyTorch's names. Unused constants are kept.
struct Optimizer {
  OptimizerKind kind = OptimizerKind::kSgd;
  double lr = 0.01;
  double momentum = 0.0;  ///< sgd, rmsprop, muon
  bool nesterov = false;  ///< sgd, muon
  double weight_decay = 0.0;
  double beta1 = 0.9;    ///< adam, adamw, lion, lamb; muon: for what adamw updates
  double beta2 = 0.999;  ///< the same; rmsprop: alpha
  /// All but sgd and lion. adafactor: the smallest step relative to a parameter. muon: as beta1.
  double eps = 1e-8;

  bool operator==(const Optimizer&) const = default;
};

/// Returns PyTorch's defaults of a kind; for lion and lamb those of their papers.
Optimizer default_optimizer(OptimizerKind kind);

std::string_view optimizer_name(OptimizerKind kind);
Result<OptimizerKind> parse_optimizer_kind(std::string_view name);
std::vector<std::string> optimizer_names();

/// Returns whether the kind uses a constant ("momentum", "nesterov", "beta1", "beta2", "eps").
bool uses_constant(OptimizerKind kind, std::string_view constant);

/// Returns whether an update needs the whole parameter (adafactor, muon), not only sums over parts.
bool needs_whole(OptimizerKind kind);

/// State that the optimizer keeps for a parameter from step to step.
struct StateSpec {
  /// kParameter: shaped and sharded like the parameter. Others are whole on every device: in its
  /// shape (kWhole), or with the last (kRows) or second-to-last dimension (kColumns) of size 1.
  enum class Shape { kParameter, kWhole, kRows, kColumns };
  std::string_view name;  ///< "exp_avg" for a state called "PARAMETER/exp_avg"
  Shape shape = Shape::kParameter;
  bool operator==(const StateSpec&) const = default;
};
/// Returns at most two states for a parameter of `dims` dimensions.
std::vector<StateSpec> find_states(const Optimizer& optimizer, std::size_t dims);

Json optimizer_to_json(const Optimizer& optimizer);
Result<Optimizer> optimizer_from_json(const Json& json, const std::string& where);

}  // namespace motley::plan
