#include "motley/run/torch/operators/element_update.h"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <string>

namespace motley::run {
namespace {

constexpr std::array<ElementKind, 10> kKinds = {
    ElementKind::kSgd,     ElementKind::kAdam,   ElementKind::kAdamW, ElementKind::kAdagrad,
    ElementKind::kRmsprop, ElementKind::kLion,   ElementKind::kLamb,  ElementKind::kMuon,
    ElementKind::kApply,   ElementKind::kAverage};

ElementStep step_of(ElementKind kind) {
  switch (kind) {
    case ElementKind::kSgd:
    case ElementKind::kMuon:
      return {kind, 0.1, 0.01, 3, {0.9, 1}};
    case ElementKind::kAdagrad:
      return {kind, 0.1, 0.01, 3, {1e-10}};
    case ElementKind::kRmsprop:
      return {kind, 0.1, 0.01, 3, {0.99, 1e-8, 0.9}};
    default:
      return {kind, 0.1, 0.01, 3, {0.9, 0.999, 1e-8}};
  }
}

int states_of(ElementKind kind) {
  switch (kind) {
    case ElementKind::kApply:
    case ElementKind::kAverage:
      return 0;
    case ElementKind::kSgd:
    case ElementKind::kAdagrad:
    case ElementKind::kLion:
    case ElementKind::kMuon:
      return 1;
    default:
      return 2;
  }
}

/// Makes two parameters, one of a length that no vector divides.
ElementTensors make_tensors(ElementKind kind, at::ScalarType dtype) {
  ElementTensors made;
  const int states = states_of(kind);
  for (const std::int64_t elements : {12, 70001}) {
    const auto draw = [&] { return at::randn({elements}).to(dtype); };
    made.parameters.push_back(draw());
    made.gradients.push_back(draw());
    if (states > 0) made.state1.push_back(draw().abs());
    if (states > 1) made.state2.push_back(draw().abs());
  }
  return made;
}

ElementTensors copy_of(const ElementTensors& from) {
  ElementTensors copy = from;
  for (auto* each : {&copy.parameters, &copy.gradients, &copy.state1, &copy.state2})
    for (at::Tensor& tensor : *each) tensor = tensor.clone();
  return copy;
}

bool are_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!at::equal(a[i], b[i])) return false;
  return a.size() == b.size();
}

/// PyTorch's list operators use other vectors than our loops; results can be identical only because
/// every operation is rounded once.
TEST(ElementUpdateTest, ListsAndElementsHaveTheSameBits) {
  for (const ElementKind kind : kKinds)
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      const ElementTensors lists = make_tensors(kind, dtype), elements = copy_of(lists);
      update_by_lists(lists, step_of(kind));
      update_elements(elements, step_of(kind));
      const std::string which =
          "kind " + std::to_string(static_cast<int>(kind)) + " of " + at::toString(dtype);
      EXPECT_TRUE(are_equal(lists.parameters, elements.parameters)) << which;
      EXPECT_TRUE(are_equal(lists.gradients, elements.gradients)) << which;
      EXPECT_TRUE(are_equal(lists.state1, elements.state1)) << which;
      EXPECT_TRUE(are_equal(lists.state2, elements.state2)) << which;
    }
}

/// Equal but for the last bits: 4 roundings of the distance between neighbouring numbers.
TEST(ElementUpdateTest, NumbersAreThoseOfPyTorchsFusedKernels) {
  const ElementTensors ours = make_tensors(ElementKind::kAdam, at::kFloat), fused = copy_of(ours);
  update_elements(ours, step_of(ElementKind::kAdam));
  const std::vector<at::Tensor> counts(2, at::full({}, 3.0F));
  at::_fused_adam_(fused.parameters, fused.gradients, fused.state1, fused.state2, {}, counts, 0.1,
                   0.9, 0.999, 0.01, 1e-8, /*amsgrad=*/false, /*maximize=*/false, std::nullopt,
                   std::nullopt);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(ours.parameters[i].allclose(fused.parameters[i], 5e-7, 5e-7));
    EXPECT_TRUE(ours.state1[i].allclose(fused.state1[i], 3e-7, 3e-7));
    EXPECT_TRUE(ours.state2[i].allclose(fused.state2[i], 3e-7, 3e-7));
  }
}

}  // namespace
}  // namespace motley::run
