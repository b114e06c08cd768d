#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "motley/base/result.h"

namespace motley::control {

/// The noise scale (adapt/noise_scale.h) over samples taken: linear between points, else constant.
struct NoiseCourse {
  std::vector<std::pair<double, double>> points;  ///< samples taken, noise scale; at least one

  double at(double taken) const;
};

/// Parses "400", or samples taken and scale: "0:200,20000:1500,80000:9000". Usage error
/// `cli.noise-scale`: negative numbers, samples that do not rise, an empty text.
Result<NoiseCourse> parse_noise_course(std::string_view text);

}  // namespace motley::control
