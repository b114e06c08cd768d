#pragma once

#include <cmath>

#include "motley/base/exact_math.h"
#include "motley/run/torch/operators/element_rules.h"

namespace motley::run {

// Rules (element_rules.h) that divide by the root of a mean, or sum, of squares.

/// Adam's first and second moments; their bias-corrected quotient is the direction.
template <typename Constant>
struct Moments {
  explicit Moments(const ElementStep& s)
      : blend(1 - s.constants[0]),
        keep(s.constants[1]),
        add(1 - s.constants[1]),
        first_scale(1 / (1 - exact_power(s.constants[0], s.count))),
        second_scale(1 / std::sqrt(1 - exact_power(s.constants[1], s.count))),
        eps(s.constants[2]) {}
  template <typename Number>
  void update(const Number& g, Number& first, Number& second) const {
    first = blend(first, g);
    second = second * keep + g * g * add;
  }
  template <typename Number>
  Number direction(const Number& first, const Number& second, Constant scale) const {
    using std::sqrt;
    return first * scale / (sqrt(second) * second_scale + eps);
  }
  Blend<Constant> blend;
  Constant keep, add, first_scale, second_scale, eps;
};

template <typename Constant>
struct Adam {
  static constexpr int kStates = 2;
  static constexpr Writes kWrites = Writes::kParameter;
  explicit Adam(const ElementStep& s)
      : moments(s),
        scale(s.lr / (1 - exact_power(s.constants[0], s.count))),
        decay(s.kind == ElementKind::kAdam ? s.weight_decay : 0),
        shrink(s.kind == ElementKind::kAdam ? 1 : 1 - s.lr * s.weight_decay) {}
  template <typename Number>
  void operator()(Number& p, Number& g, Number& first, Number& second) const {
    if (decay != 0) g = g + p * decay;
    if (shrink != 1) p = p * shrink;
    moments.update(g, first, second);
    p = p - moments.direction(first, second, scale);
  }
  Moments<Constant> moments;
  Constant scale, decay, shrink;
};

template <typename Constant>
struct Lamb {
  static constexpr int kStates = 2;
  static constexpr Writes kWrites = Writes::kGradient;
  explicit Lamb(const ElementStep& s) : moments(s), decay(s.weight_decay) {}
  template <typename Number>
  void operator()(Number& p, Number& g, Number& first, Number& second) const {
    moments.update(g, first, second);
    g = moments.direction(first, second, moments.first_scale);
    if (decay != 0) g = g + p * decay;
  }
  Moments<Constant> moments;
  Constant decay;
};

template <typename Constant>
struct Adagrad {
  static constexpr int kStates = 1;
  static constexpr Writes kWrites = Writes::kParameter;
  explicit Adagrad(const ElementStep& s) : rate(s.lr), decay(s.weight_decay), eps(s.constants[0]) {}
  template <typename Number>
  void operator()(Number& p, Number& g, Number& sum, Number&) const {
    using std::sqrt;
    if (decay != 0) g = g + p * decay;
    sum = sum + g * g;
    p = p - g * rate / (sqrt(sum) + eps);
  }
  Constant rate, decay, eps;
};

template <typename Constant>
struct Rmsprop {
  static constexpr int kStates = 1;
  static constexpr Writes kWrites = Writes::kParameter;
  explicit Rmsprop(const ElementStep& s)
      : rate(s.lr),
        decay(s.weight_decay),
        keep(s.constants[0]),
        add(1 - s.constants[0]),
        eps(s.constants[1]),
        momentum(s.constants[2]) {}
  template <typename Number>
  Number direction(const Number& p, Number& g, Number& average) const {
    using std::sqrt;
    if (decay != 0) g = g + p * decay;
    average = average * keep + g * g * add;
    return g / (sqrt(average) + eps);
  }
  template <typename Number>
  void operator()(Number& p, Number& g, Number& average, Number&) const {
    p = p - direction(p, g, average) * rate;
  }
  Constant rate, decay, keep, add, eps, momentum;
};

template <typename Constant>
struct RmspropMomentum : Rmsprop<Constant> {
  static constexpr int kStates = 2;
  using Rmsprop<Constant>::Rmsprop;
  template <typename Number>
  void operator()(Number& p, Number& g, Number& average, Number& buffer) const {
    buffer = buffer * this->momentum + this->direction(p, g, average);
    p = p - buffer * this->rate;
  }
};

}  // namespace motley::run
