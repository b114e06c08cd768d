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
  kMuon,       ///< Jordan et al. 2024, as torch.optim.Muon; of matrices
};

/// Optimizer and its constants, with PyTorch's names; those that a kind does not use are kept.
struct Optimizer {
  OptimizerKind kind = OptimizerKind::kSgd;
  double lr = 0.01;
  double momentum = 0.0;  ///< sgd, rmsprop, muon
  bool nesterov = false;  ///< sgd, muon
  double weight_decay = 0.0;
  double beta1 = 0.9;    ///< adam, adamw, lion, lamb; muon: of what adamw updates
  double beta2 = 0.999;  ///< the same; rmsprop: alpha
  /// All but sgd and lion; adafactor: the least step relative to a parameter; muon: as beta1.
  double eps = 1e-8;

  bool operator==(const Optimizer&) const = default;
};

/// PyTorch's defaults of a kind; those of their papers for lion and lamb.
Optimizer default_optimizer(OptimizerKind kind);

std::string_view optimizer_name(OptimizerKind kind);
Result<OptimizerKind> parse_optimizer_kind(std::string_view name);
/// Names of all kinds, in order.
std::vector<std::string> optimizer_names();

/// Does the kind use this constant ("momentum", "nesterov", "beta1", "beta2", "eps")?
bool uses_constant(OptimizerKind kind, std::string_view constant);

/// Does it look at a parameter as a whole, so that devices with parts of it exchange more than
/// sums: adafactor, muon?
bool needs_whole(OptimizerKind kind);

/// What the optimizer keeps of a parameter from step to step.
struct StateSpec {
  /// As the parameter, in parts where it is; or whole on all devices: of its shape, or with its
  /// last, or last but one, extent 1.
  enum class Shape { kParameter, kWhole, kRows, kColumns };
  std::string_view name;  ///< "exp_avg": the state is called "PARAMETER/exp_avg"
  Shape shape = Shape::kParameter;
  bool operator==(const StateSpec&) const = default;
};
/// At most two, of a parameter of so many dimensions.
std::vector<StateSpec> find_states(const Optimizer& optimizer, std::size_t dims);

Json optimizer_to_json(const Optimizer& optimizer);
Result<Optimizer> optimizer_from_json(const Json& json, const std::string& where);

}  // namespace motley::plan
