#include "motley/cost/layers/stage_network.h"

#include <algorithm>
#include <cmath>

namespace motley::cost {
namespace {

constexpr std::int64_t kSmallestFitted = 1'000'000;  // bytes

}  // namespace

Seconds transfer_time(const RateCurve& curve, Bytes bytes, double flows) {
  if (bytes.value == 0) return Seconds(0);
  const auto [a, b, c] = curve.coefficients;
  const double size = static_cast<double>(std::max(bytes.value, kSmallestFitted));
  double x = std::log2(size / 1e6);
  if (a < 0) x = std::min(x, std::max(-b / (2 * a), 0.0));
  const double rate = std::min((a * x * x + b * x + c) * 1e9, curve.peak.value);
  return Seconds(size * flows / rate);
}

}  // namespace motley::cost
