#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <vector>

namespace motley::run {

/// Element-wise operations (element_rules.h): optimizers; the directions of lamb and muon, which
/// overwrite the gradients; a step along directions; an exponential average.
enum class ElementKind {
  kSgd,
  kAdam,
  kAdamW,
  kAdagrad,
  kRmsprop,
  kLion,
  kLamb,
  kMuon,
  kApply,
  kAverage
};

/// The numbers of a step; `constants` in the order of docs/formats/program.md.
struct ElementStep {
  ElementKind kind;
  double lr = 0;  ///< of this step; or the step's length; or the weight of the newest value
  double weight_decay = 0;  ///< for a step along directions: the share that parameters lose
  double count = 1;         ///< updates made, this one included
  std::array<double, 3> constants = {};
};

/// Parallel lists of tensors, one entry per parameter; one dtype and device. Unused states: empty.
struct ElementTensors {
  std::vector<at::Tensor> parameters, gradients, state1, state2;
};

/// Updates all elements, with the same bits on every CPU and on every GPU. Tensors are contiguous;
/// 16-bit ones are computed in float32 and rounded at the end. A CPU makes one pass over the memory
/// in at::parallel_for; other devices run one operation after another on lists of tensors.
void update_elements(const ElementTensors& tensors, const ElementStep& step);

/// Does the same by operations on lists of tensors, as GPUs do, on any device.
void update_by_lists(const ElementTensors& tensors, const ElementStep& step);

}  // namespace motley::run
