#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <vector>

namespace motley::run {

/// What is done to each element for itself (element_rules.h): optimizers; the directions of lamb
/// and muon, which take the gradients' place; a step along directions; an exponential average.
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

/// The numbers of a step, in the order that docs/formats/program.md gives for `constants`.
struct ElementStep {
  ElementKind kind;
  double lr = 0;  ///< of this step; how far to apply directions; the weight of an average's newest
  double weight_decay = 0;  ///< of directions that are applied: the part that parameters lose
  double count = 1;         ///< updates made, this one included
  std::array<double, 3> constants = {};
};

/// Tensors that belong together, one of each a parameter, of one dtype and on one device; states as
/// many as the kind keeps, else empty.
struct ElementTensors {
  std::vector<at::Tensor> parameters, gradients, state1, state2;
};

/// Updates all elements, with the same bits on every CPU and on every GPU. Tensors are contiguous;
/// 16-bit ones are computed in float32 and rounded at the end. On a CPU in one pass over the
/// memory, in at::parallel_for; else an operation after the other, for lists of tensors at once.
void update_elements(const ElementTensors& tensors, const ElementStep& step);

/// The same by operations on lists of tensors, which are what a GPU runs, on any device.
void update_by_lists(const ElementTensors& tensors, const ElementStep& step);

}  // namespace motley::run
