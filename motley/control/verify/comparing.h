#pragma once

#include <map>
#include <string>
#include <vector>

#include "motley/control/training/training.h"

namespace motley::control {

/// How far two trainings of the same samples are apart, relative to the second.
struct Difference {
  double loss = 0;                        ///< the largest over the steps that both have
  std::map<std::string, double> tensors;  ///< ||a - b|| / ||b|| by name
  bool has_all_steps = false;             ///< both have the same number of steps
};

/// What a training gave.
struct Trained {
  std::vector<double> losses;
  std::string model;  ///< .safetensors
};

/// Compares the losses, and the trained models tensor by tensor; integers that differ at all differ
/// by 1. A runtime error if a tensor is missing or has another shape.
Result<Difference> compare_trained(const Trained& ours, const Trained& reference);

/// The inputs and the plan, on one whole CPU core of this machine: what a split must equal.
struct Reference {
  Inputs inputs;
  Planned planned;
};
Result<Reference> make_reference(const Inputs& inputs, const plan::Plan& plan);

}  // namespace motley::control
