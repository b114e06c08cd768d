#include "peers/steps/efficiency_fit.h"

#include <limits>

#include "motley/cost/fit/least_squares.h"

namespace motley::peers {
namespace {

/// Returns 1 / coefficient; infinite for a term that costs nothing.
double inverse(double coefficient) {
  return coefficient > 0 ? 1 / coefficient : std::numeric_limits<double>::infinity();
}

}  // namespace

Result<cost::KindEfficiency> fit_efficiency(const std::vector<KindSample>& samples) {
  std::vector<std::vector<double>> rows;
  std::vector<double> seconds;
  for (const KindSample& sample : samples) {
    rows.push_back(
        {static_cast<double>(sample.launches), sample.flop_seconds, sample.byte_seconds});
    seconds.push_back(sample.measured.value);
  }
  MOTLEY_ASSIGN(const std::vector<double> fitted, cost::fit_relative(rows, seconds));
  return cost::KindEfficiency{Seconds(fitted[0]), inverse(fitted[1]), inverse(fitted[2])};
}

}  // namespace motley::peers
