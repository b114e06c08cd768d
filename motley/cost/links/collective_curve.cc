#include "motley/cost/links/collective_curve.h"

#include <algorithm>
#include <cmath>

namespace motley::cost {
namespace {

double between(double left, double right, double share) { return left + share * (right - left); }

}  // namespace

double CollectiveCurve::way(double bytes) const {
  if (!transports) return share;
  const Seconds from = transports->fewer.at(bytes), to = transports->more.at(bytes);
  // A time that hardly depends on the ranks gives no direction.
  if (std::abs((to - from).value) < 1e-6 * to.value) return share;
  return std::clamp((transports->wanted.at(bytes) - from) / (to - from), 0.0, 1.0);
}

Seconds CollectiveCurve::at(double bytes) const {
  const double scaled = scale * bytes;
  if (share == 0) return fewer.at(scaled);
  return Seconds(between(fewer.at(scaled).value, more.at(scaled).value, way(scaled)));
}

Affine CollectiveCurve::piece(double bytes) const {
  const double scaled = scale * bytes;
  const Seconds latency = share == 0
                              ? fewer.piece(scaled).latency
                              : Seconds(between(fewer.piece(scaled).latency.value,
                                                more.piece(scaled).latency.value, way(scaled)));
  return {latency, bytes > 0 ? (at(bytes) - latency).value / bytes : 0};
}

}  // namespace motley::cost
