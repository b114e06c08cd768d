#include "motley/run/torch/operators/element_update.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sign.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_foreach_sub.h>

#include <algorithm>
#include <cmath>

#include "motley/run/torch/operators/adaptive_rules.h"
#include "motley/run/torch/operators/element_rules.h"

namespace motley::run {

namespace {

/// Tensors that stand for one number of a rule. Sums use alpha = 1 and quotients two lists: other
/// forms are contracted, or multiply by a reciprocal, on some devices.
struct TensorList {
  std::vector<at::Tensor> tensors;
};
TensorList operator+(const TensorList& a, const TensorList& b) {
  return {at::_foreach_add(a.tensors, b.tensors)};
}
TensorList operator+(const TensorList& a, double b) { return {at::_foreach_add(a.tensors, b)}; }
TensorList operator-(const TensorList& a, const TensorList& b) {
  return {at::_foreach_sub(a.tensors, b.tensors)};
}
TensorList operator*(const TensorList& a, const TensorList& b) {
  return {at::_foreach_mul(a.tensors, b.tensors)};
}
TensorList operator*(const TensorList& a, double b) { return {at::_foreach_mul(a.tensors, b)}; }
TensorList operator/(const TensorList& a, const TensorList& b) {
  return {at::_foreach_div(a.tensors, b.tensors)};
}
template <typename Element>
at::Tensor roots_of(const at::Tensor& x) {
  at::Tensor roots = x.clone();
  auto* each = roots.mutable_data_ptr<Element>();
  for (std::int64_t i = 0; i < roots.numel(); ++i) each[i] = std::sqrt(each[i]);
  return roots;
}
TensorList sqrt(const TensorList& x) {
  if (!x.tensors.front().is_cpu()) return {at::_foreach_sqrt(x.tensors)};
  TensorList roots;  // PyTorch uses MKL's there; about one in two hundred is slightly off
  for (const at::Tensor& each : x.tensors)
    roots.tensors.push_back(each.scalar_type() == at::kFloat ? roots_of<float>(each)
                                                             : roots_of<double>(each));
  return roots;
}
TensorList sign_of(const TensorList& x) { return {at::_foreach_sign(x.tensors)}; }

template <typename Element>
struct Elements {
  Element *parameters, *gradients, *state1, *state2;
};

template <typename Rule, typename Element>
[[gnu::always_inline]] inline void update_stretch(const Rule& rule, const Elements<Element>& all,
                                                  std::int64_t begin, std::int64_t end) {
  Element* __restrict parameters = all.parameters;
  Element* __restrict gradients = all.gradients;
  Element* __restrict state1 = all.state1;
  Element* __restrict state2 = all.state2;
  for (std::int64_t i = begin; i < end; ++i) {
    Element p = parameters[i], g = gradients[i], first = 0, second = 0;
    if constexpr (Rule::kStates > 0) first = state1[i];
    if constexpr (Rule::kStates > 1) second = state2[i];
    rule(p, g, first, second);
    if constexpr (Rule::kWrites == Writes::kParameter) parameters[i] = p;
    if constexpr (Rule::kWrites == Writes::kGradient) gradients[i] = g;
    if constexpr (Rule::kStates > 0) state1[i] = first;
    if constexpr (Rule::kStates > 1) state2[i] = second;
  }
}

#if defined(__x86_64__)
/// Does the same, eight elements at a time.
template <typename Rule, typename Element>
[[gnu::target("avx2")]] void update_wide(const Rule& rule, const Elements<Element>& all,
                                         std::int64_t begin, std::int64_t end) {
  update_stretch(rule, all, begin, end);
}
bool has_wide() { return __builtin_cpu_supports("avx2") != 0; }
#else
template <typename Rule, typename Element>
void update_wide(const Rule&, const Elements<Element>&, std::int64_t, std::int64_t) {}
bool has_wide() { return false; }
#endif

/// The tensors of one parameter; undefined: the kind keeps no such state.
struct OneParameter {
  at::Tensor parameter, gradient, state1, state2;
};

template <typename Element>
Element* elements_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<Element*>(tensor.data_ptr()) : nullptr;
}

template <template <typename> typename Rule, typename Element>
void update_one(const OneParameter& one, const ElementStep& step) {
  constexpr std::int64_t kGrain = 16384;
  const Rule<Element> rule(step);
  const Elements<Element> all{elements_of<Element>(one.parameter),
                              elements_of<Element>(one.gradient), elements_of<Element>(one.state1),
                              elements_of<Element>(one.state2)};
  const bool is_wide = has_wide();
  at::parallel_for(0, one.parameter.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    if (is_wide)
      update_wide(rule, all, begin, end);
    else
      update_stretch(rule, all, begin, end);
  });
}

/// Converts elements [begin, begin + count) of each to float32.
OneParameter widen(const OneParameter& one, std::int64_t begin, std::int64_t count) {
  const auto part = [&](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.view({-1}).narrow(0, begin, count).to(at::kFloat) : tensor;
  };
  return {part(one.parameter), part(one.gradient), part(one.state1), part(one.state2)};
}

void narrow_back(const at::Tensor& from, const at::Tensor& to, std::int64_t begin) {
  if (to.defined()) to.view({-1}).narrow(0, begin, from.numel()).copy_(from);
}

template <template <typename> typename Rule>
void update_one_of_any_type(const OneParameter& one, const ElementStep& step) {
  constexpr std::int64_t kPiece = 65536;  // elements that stay in the cache as float32
  const auto dtype = one.parameter.scalar_type();
  if (dtype == at::kFloat) return update_one<Rule, float>(one, step);
  if (dtype == at::kDouble) return update_one<Rule, double>(one, step);
  for (std::int64_t begin = 0; begin < one.parameter.numel(); begin += kPiece) {
    const OneParameter piece = widen(one, begin, std::min(kPiece, one.parameter.numel() - begin));
    update_one<Rule, float>(piece, step);
    constexpr bool kWritesParameter = Rule<float>::kWrites == Writes::kParameter;
    if (kWritesParameter) narrow_back(piece.parameter, one.parameter, begin);
    if (!kWritesParameter) narrow_back(piece.gradient, one.gradient, begin);
    narrow_back(piece.state1, one.state1, begin);
    narrow_back(piece.state2, one.state2, begin);
  }
}

at::Tensor state_of(const std::vector<at::Tensor>& states, std::size_t i) {
  return states.empty() ? at::Tensor() : states[i];
}

struct ByElements {
  template <template <typename> typename Rule>
  static void run(const ElementTensors& tensors, const ElementStep& step) {
    for (std::size_t i = 0; i < tensors.parameters.size(); ++i)
      update_one_of_any_type<Rule>({tensors.parameters[i], tensors.gradients[i],
                                    state_of(tensors.state1, i), state_of(tensors.state2, i)},
                                   step);
  }
};

TensorList as_numbers(const std::vector<at::Tensor>& tensors) {
  TensorList list{tensors};
  for (at::Tensor& each : list.tensors)
    if (each.element_size() == 2) each = each.to(at::kFloat);
  return list;
}

struct ByLists {
  template <template <typename> typename Rule>
  static void run(const ElementTensors& tensors, const ElementStep& step) {
    TensorList p = as_numbers(tensors.parameters), g = as_numbers(tensors.gradients),
               first = as_numbers(tensors.state1), second = as_numbers(tensors.state2);
    const Rule<double> rule(step);
    rule(p, g, first, second);
    if (Rule<double>::kWrites == Writes::kParameter)
      at::_foreach_copy_(tensors.parameters, p.tensors);
    if (Rule<double>::kWrites == Writes::kGradient)
      at::_foreach_copy_(tensors.gradients, g.tensors);
    if (Rule<double>::kStates > 0) at::_foreach_copy_(tensors.state1, first.tensors);
    if (Rule<double>::kStates > 1) at::_foreach_copy_(tensors.state2, second.tensors);
  }
};

template <typename Way>
void update(const ElementTensors& t, const ElementStep& step) {
  switch (step.kind) {
    case ElementKind::kSgd:
      return t.state1.empty() ? Way::template run<Sgd>(t, step)
                              : Way::template run<SgdMomentum>(t, step);
    case ElementKind::kAdam:
    case ElementKind::kAdamW:
      return Way::template run<Adam>(t, step);
    case ElementKind::kAdagrad:
      return Way::template run<Adagrad>(t, step);
    case ElementKind::kRmsprop:
      return t.state2.empty() ? Way::template run<Rmsprop>(t, step)
                              : Way::template run<RmspropMomentum>(t, step);
    case ElementKind::kLion:
      return Way::template run<Lion>(t, step);
    case ElementKind::kLamb:
      return Way::template run<Lamb>(t, step);
    case ElementKind::kMuon:
      return Way::template run<Muon>(t, step);
    case ElementKind::kApply:
      return Way::template run<Apply>(t, step);
    case ElementKind::kAverage:
      return Way::template run<Average>(t, step);
  }
}

}  // namespace

void update_elements(const ElementTensors& tensors, const ElementStep& step) {
  if (tensors.parameters.empty()) return;
  if (!tensors.parameters.front().is_cpu()) return update_by_lists(tensors, step);
  update<ByElements>(tensors, step);
}

void update_by_lists(const ElementTensors& tensors, const ElementStep& step) {
  if (!tensors.parameters.empty()) update<ByLists>(tensors, step);
}

}  // namespace motley::run
