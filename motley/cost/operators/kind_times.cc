#include "motley/cost/operators/kind_times.h"

#include <algorithm>
#include <limits>

#include "motley/cost/fit/least_squares.h"

namespace motley::cost {
namespace {

/// 1 / coefficient; a term that a fit found to cost nothing is infinitely fast.
double inverse(double coefficient) {
  return coefficient > 0 ? 1 / coefficient : std::numeric_limits<double>::infinity();
}

}  // namespace

Seconds kind_seconds(const cluster::PlanningKind& kind, DType dtype, const OperatorWork& work,
                     const KindEfficiency& efficiency) {
  if (work.launches == 0) return Seconds(0);
  double seconds = work.bytes / (kind.memory_bandwidth.value * efficiency.bytes);
  if (const auto rate = cluster::peak_rate(kind, dtype))
    seconds += work.flops / (rate->value * efficiency.flops);
  return Seconds(std::max(efficiency.launch.value * work.launches, seconds));
}

Result<KindEfficiency> fit_efficiency(const std::vector<KindSample>& samples) {
  std::vector<std::vector<double>> rows;
  std::vector<double> seconds;
  for (const KindSample& sample : samples) {
    rows.push_back(
        {static_cast<double>(sample.launches), sample.flop_seconds, sample.byte_seconds});
    seconds.push_back(sample.measured.value);
  }
  MOTLEY_ASSIGN(const std::vector<double> fitted, fit_relative(rows, seconds));
  return KindEfficiency{Seconds(fitted[0]), inverse(fitted[1]), inverse(fitted[2])};
}

TimeSource::Answer KindTimes::answer(std::string_view /*name*/, DType dtype,
                                     const OperatorWork& work) const {
  return {kind_seconds(kind_, dtype, work, efficiency_), Bytes(0)};
}

}  // namespace motley::cost
