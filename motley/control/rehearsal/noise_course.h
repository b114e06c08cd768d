#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "motley/base/result.h"

namespace motley::control {

/// How the noise scale of a training's gradients (adapt/noise_scale.h) goes on with the samples
/// that were taken: straight between points, the first and the last one's before and after.
struct NoiseCourse {
  std::vector<std::pair<double, double>> points;  ///< samples taken, noise scale; one or more

  double at(double taken) const;
};

/// "400", or samples taken and scale: "0:200,20000:1500,80000:9000". Usage error `cli.noise-scale`:
/// numbers that are negative, samples that do not rise, nothing at all.
Result<NoiseCourse> parse_noise_course(std::string_view text);

}  // namespace motley::control
