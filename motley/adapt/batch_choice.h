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

struct BatchChoice {
  double batch = 0;
  Seconds step;
  /// Training per second, in steps of a batch of one sample: (B / step) (noise + 1) / (noise + B).
  double rate = 0;
};

/// Finds the batch with the most progress per second at this noise scale (samples), in closed form.
/// On a straight piece A + D B of the least step it is sqrt(A noise / D), or an end. All pieces are
/// checked (devices that join one by one make the curve nonconvex); ties go to the smallest batch.
/// The initial batch scales progress and changes nothing. Returns nothing where the devices cannot
/// take `least`. O(points). `least_step` is that of batch_option.h.
///
///   one piece 0.01 s + 0.0001 s B, noise 400: B = sqrt(0.01 * 400 / 0.0001) = 200
std::optional<BatchChoice> choose_batch(const std::vector<CurvePoint>& least_step,
                                        const BatchBounds& bounds, double noise);

}  // namespace motley::adapt
