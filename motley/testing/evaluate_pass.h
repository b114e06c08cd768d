#pragma once

#include <cstdint>

#include "motley/base/random.h"
#include "motley/testing/evaluate_operator.h"

namespace motley::testing {

/// Draws numbers by each element's place in the whole batch, for samples from `first` on.
inline Tensor drawn_from(Shape shape, std::int64_t draw, std::int64_t first) {
  Tensor made = filled(std::move(shape), 0);
  const auto width = made.shape[0] == 0 ? 0 : count_of(made.shape) / made.shape[0];
  for (std::size_t i = 0; i < made.at.size(); ++i) {
    const std::int64_t element = first * width + static_cast<std::int64_t>(i);
    SplitMix64 random(static_cast<std::uint64_t>(draw * 1000003 + element));
    made.at[i] = random.uniform();
  }
  return made;
}

/// Evaluates slices of inputs and draws for a pass over samples from `first` on.
inline Results evaluate_pass(const Call& call, std::int64_t first) {
  if (call.name == "motley::random") return {drawn_from(call.shapes[0], call.integer(3), first)};
  if (call.name != "aten::slice.Tensor") return evaluate(call);
  Tensor part{call.shapes[0], {}};
  const Tensor& x = call.tensor(0);
  const std::int64_t begin = call.integer(2), rows = call.integer(3) - begin;
  part.at = rows_of(x.at, seen(x.shape, call.integer(1)), begin, rows);
  EXPECT_EQ(count_of(part.shape), static_cast<std::int64_t>(part.at.size())) << call.name;
  return {part};
}

}  // namespace motley::testing
