#include "motley/control/rehearsal/noise_course.h"

#include <cmath>
#include <string>

#include "motley/base/text.h"

namespace motley::control {

double NoiseCourse::at(double taken) const {
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto& [samples, scale] = points[i];
    if (taken > samples) continue;
    if (i == 0) return scale;
    const auto& [before, from] = points[i - 1];
    return from + (scale - from) * (taken - before) / (samples - before);
  }
  return points.back().second;
}

Result<NoiseCourse> parse_noise_course(std::string_view text) {
  const auto fault = [&] {
    return usage_error("cli.noise-scale",
                       "--noise-scale: found '" + std::string(text) +
                           "', wanted a number of samples, or such after rising numbers of samples "
                           "taken: 0:200,20000:1500");
  };
  NoiseCourse course;
  for (const std::string_view part : split(text, ',')) {
    const std::vector<std::string_view> pair = split(part, ':');
    const bool is_alone = pair.size() == 1 && course.points.empty() && part == text;
    if (pair.size() != 2 && !is_alone) return fault();
    const auto taken = is_alone ? std::optional(0.0) : find_float(pair.front());
    const auto scale = find_float(pair.back());
    const auto is_sound = [](const std::optional<double>& x) {
      return x && std::isfinite(*x) && *x >= 0;
    };
    if (!is_sound(taken) || !is_sound(scale) ||
        (!course.points.empty() && *taken <= course.points.back().first))
      return fault();
    course.points.emplace_back(*taken, *scale);
  }
  return course;
}

}  // namespace motley::control
