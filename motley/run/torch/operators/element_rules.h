#pragma once

#include <concepts>

#include "motley/run/torch/operators/element_update.h"

namespace motley::run {

/// Optimizer steps for one element, as sequences of operations that IEEE 754 rounds in only one
/// way: + - * / and square roots, never contracted (-ffp-contract=off). So all devices get the same
/// bits, whatever their vector width, whether elements are processed one by one (`Number` and
/// constants are float or double) or one operation at a time over lists of tensors
/// (element_update.cc; constants are double and are rounded to the elements' type). Formulas:
/// docs/formats/program.md.
///
/// A rule is called with parameter, gradient and two states by reference. `kStates` is the number
/// of states; `kWrites` tells what it changes beside them.
enum class Writes { kParameter, kGradient };

template <std::floating_point Number>
Number sign_of(Number x) {
  return static_cast<Number>((x > 0) - (x < 0));
}

/// Computes from + weight (to - from), by PyTorch's formula.
template <typename Constant>
struct Blend {
  explicit Blend(double weight)
      : starts(weight < 0.5), part(static_cast<Constant>(starts ? weight : 1 - weight)) {}
  template <typename Number>
  Number operator()(const Number& from, const Number& to) const {
    return starts ? from + (to - from) * part : to - (to - from) * part;
  }
  bool starts;
  Constant part;
};

template <typename Constant>
struct Sgd {
  static constexpr int kStates = 0;
  static constexpr Writes kWrites = Writes::kParameter;
  explicit Sgd(const ElementStep& s) : rate(s.lr), decay(s.weight_decay) {}
  template <typename Number>
  void operator()(Number& p, Number& g, Number&, Number&) const {
    if (decay != 0) g = g + p * decay;
    p = p - g * rate;
  }
  Constant rate, decay;
};

template <typename Constant>
struct SgdMomentum {
  static constexpr int kStates = 1;
  static constexpr Writes kWrites = Writes::kParameter;
  explicit SgdMomentum(const ElementStep& s)
      : rate(s.lr), decay(s.weight_decay), momentum(s.constants[0]), nesterov(s.constants[1]) {}
  template <typename Number>
  void operator()(Number& p, Number& g, Number& buffer, Number&) const {
    if (decay != 0) g = g + p * decay;
    buffer = buffer * momentum + g;
    if (nesterov != 0)
      p = p - (g + buffer * momentum) * rate;
    else
      p = p - buffer * rate;
  }
  Constant rate, decay, momentum, nesterov;
};

template <typename Constant>
struct Lion {
  static constexpr int kStates = 1;
  static constexpr Writes kWrites = Writes::kParameter;
  explicit Lion(const ElementStep& s)
      : rate(s.lr),
        shrink(1 - s.lr * s.weight_decay),
        ahead(s.constants[0]),
        follow(1 - s.constants[1]) {}
  template <typename Number>
  void operator()(Number& p, Number& g, Number& average, Number&) const {
    p = p * shrink - sign_of(ahead(g, average)) * rate;
    average = follow(average, g);
  }
  Constant rate, shrink;
  Blend<Constant> ahead, follow;
};

template <typename Constant>
struct Muon {
  static constexpr int kStates = 1;
  static constexpr Writes kWrites = Writes::kGradient;
  explicit Muon(const ElementStep& s)
      : follow(1 - s.constants[0]), ahead(s.constants[0]), nesterov(s.constants[1]) {}
  template <typename Number>
  void operator()(Number&, Number& g, Number& buffer, Number&) const {
    buffer = follow(buffer, g);
    g = nesterov != 0 ? ahead(g, buffer) : buffer;
  }
  Blend<Constant> follow, ahead;
  Constant nesterov;
};

/// A step of a given length along a direction, which takes the gradient's place.
template <typename Constant>
struct Apply {
  static constexpr int kStates = 0;
  static constexpr Writes kWrites = Writes::kParameter;
  explicit Apply(const ElementStep& s) : length(s.lr), shrink(1 - s.weight_decay) {}
  template <typename Number>
  void operator()(Number& p, Number& direction, Number&, Number&) const {
    if (shrink != 1) p = p * shrink;
    p = p - direction * length;
  }
  Constant length, shrink;
};

/// An average, in the parameter's place, of the value in the gradient's place.
template <typename Constant>
struct Average {
  static constexpr int kStates = 0;
  static constexpr Writes kWrites = Writes::kParameter;
  explicit Average(const ElementStep& s) : follow(s.lr) {}
  template <typename Number>
  void operator()(Number& average, Number& p, Number&, Number&) const {
    average = follow(average, p);
  }
  Blend<Constant> follow;
};

}  // namespace motley::run
