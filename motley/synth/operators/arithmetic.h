#pragma once

#include <string_view>

#include "motley/synth/operators/rank_operator.h"

namespace motley::synth {

// ---- building blocks of rewritten operators; each returns a new buffer

/// "aten::mul.Tensor" etc., broadcast as in numpy; the result has the dtype of `a`.
BufferId binary(RankOperator& op, std::string_view name, BufferId a, BufferId b);
/// a + factor * b * c, as wide as `like`.
BufferId add_product(RankOperator& op, BufferId a, BufferId b, BufferId c, std::int64_t factor,
                     BufferId like);
/// "aten::mul.Scalar", "aten::div.Scalar".
BufferId scale(RankOperator& op, std::string_view name, BufferId x, double by);
BufferId seen_as(RankOperator& op, BufferId x, const Shape& shape);
/// [.., 1, ..] with the new dimension at `dim`.
BufferId unsqueezed(RankOperator& op, BufferId x, std::int64_t dim);
/// Sums local elements over some dimensions, which stay with size 1.
BufferId sum_over(RankOperator& op, BufferId x, const Shape& dims);
/// Stacks two buffers as [2, ...].
BufferId stacked(RankOperator& op, BufferId a, BufferId b);
BufferId element(RankOperator& op, BufferId x, std::int64_t index);
/// x, with `with` where the mask is true.
BufferId filled(RankOperator& op, BufferId x, BufferId mask, program::Argument with);
/// Gives a result as another buffer viewed in the result's shape.
void give_seen_as(RankOperator& op, std::size_t result, BufferId x);

/// Returns the shape with size 1 in some dimensions.
Shape thinned(Shape shape, const Shape& dims);

/// Mean and variance over some dimensions with `all` elements across devices; f64, these dimensions
/// have size 1. Each device adds n * mean and n * (variance + mean^2) of its n elements.
struct Moments {
  BufferId mean, variance;
};
Moments find_moments(RankOperator& op, BufferId x, const Shape& dims, std::int64_t all);

}  // namespace motley::synth
