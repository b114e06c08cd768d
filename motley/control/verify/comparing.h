#pragma once

#include <map>
#include <string>
#include <vector>

#include "motley/control/training/training.h"

namespace motley::control {

/// The difference of two trainings on the same samples, relative to the second.
struct Difference {
  double loss = 0;                        ///< largest over their common steps
  std::map<std::string, double> tensors;  ///< ||a - b|| / ||b|| by name
  bool has_all_steps = false;             ///< both have equally many steps
};

struct Trained {
  std::vector<double> losses;
  std::string model;  ///< .safetensors
};

/// Compares losses and model tensors; integers that differ at all differ by 1. Runtime error: a
/// tensor is missing or has another shape.
Result<Difference> compare_trained(const Trained& ours, const Trained& reference);

/// The inputs and plan on one whole CPU core of this machine, whose results every split must equal.
struct Reference {
  Inputs inputs;
  Planned planned;
};
Result<Reference> make_reference(const Inputs& inputs, const plan::Plan& plan);

}  // namespace motley::control
