#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "motley/adapt/batch_option.h"
#include "motley/base/units.h"

namespace motley::adapt {

struct BatchBounds {
  double least = 1;
  double most = std::numeric_limits<double>::infinity();
};

/// A batch and the step it takes.
struct BatchChoice {
  double batch = 0;
  Seconds step;
  /// Training done a second, in steps of a batch of one sample: (B / step) / (noise + B), times
  /// (noise + 1).
  double rate = 0;
};

/// The batch at which training gets on fastest at this noise scale (samples), in closed form: on a
/// straight piece A + D B of the least step, progress a second is largest at sqrt(A noise / D), or
/// at an end. All pieces are looked at (the curve need not be convex where devices join one by
/// one); of equals the smallest batch. The initial batch is a factor of progress and changes
/// nothing. Nothing: the devices do not take `least`. O(points). `least_step` as batch_option.h
/// gives it.
///
///   one piece 0.01 s + 0.0001 s B, noise 400: B = sqrt(0.01 * 400 / 0.0001) = 200
std::optional<BatchChoice> choose_batch(const std::vector<CurvePoint>& least_step,
                                        const BatchBounds& bounds, double noise);

}  // namespace motley::adapt
