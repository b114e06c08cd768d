#include "motley/search/spmd/best_mix.h"

#include <algorithm>
#include <cstddef>

#include "motley/base/check.h"

namespace motley::search {
namespace {

constexpr double kTiny = 1e-12;  // for numbers of magnitude 1
constexpr int kMostPivots = 1000;

double mean(const std::vector<double>& weights, const std::vector<double>& row) {
  double sum = 0;
  for (std::size_t i = 0; i < row.size(); ++i) sum += weights[i] * row[i];
  return sum;
}

}  // namespace

Mix best_mix(const std::vector<std::vector<double>>& rows) {
  MOTLEY_CHECK(!rows.empty());
  const std::size_t columns = rows[0].size(), variables = rows.size(), all = variables + columns;
  double largest = 0;
  for (const std::vector<double>& row : rows)
    largest = std::max(largest, *std::max_element(row.begin(), row.end()));
  MOTLEY_CHECK(largest > 0);
  // max sum y such that for each column the sum over rows of entry * y <= 1; one slack per column.
  std::vector<std::vector<double>> table(columns + 1, std::vector<double>(all + 1, 0));
  std::vector<std::size_t> basis(columns);
  for (std::size_t c = 0; c < columns; ++c) {
    for (std::size_t r = 0; r < variables; ++r) table[c][r] = rows[r][c] / largest;
    table[c][variables + c] = 1;
    table[c][all] = 1;
    basis[c] = variables + c;
  }
  std::vector<double>& gain = table[columns];
  for (std::size_t r = 0; r < variables; ++r) gain[r] = -1;
  for (int pivot = 0; pivot < kMostPivots; ++pivot) {
    // Bland's rule: the first variable that gains, and the limiting row of the first variable.
    const auto entering = static_cast<std::size_t>(
        std::find_if(gain.begin(), gain.begin() + static_cast<std::ptrdiff_t>(all),
                     [](double each) { return each < -kTiny; }) -
        gain.begin());
    if (entering == all) break;
    std::size_t leaving = columns;
    for (std::size_t c = 0; c < columns; ++c) {
      if (table[c][entering] <= kTiny) continue;
      if (leaving == columns) {
        leaving = c;
        continue;
      }
      const double own = table[c][all] * table[leaving][entering];
      const double known = table[leaving][all] * table[c][entering];
      if (own < known || (own == known && basis[c] < basis[leaving])) leaving = c;
    }
    if (leaving == columns) break;
    std::vector<double>& row = table[leaving];
    const double by = row[entering];
    for (double& each : row) each /= by;
    for (std::size_t c = 0; c <= columns; ++c) {
      const double times = table[c][entering];
      if (c == leaving || times == 0) continue;
      for (std::size_t i = 0; i <= all; ++i) table[c][i] -= times * row[i];
    }
    basis[leaving] = entering;
  }
  Mix mix{std::vector<double>(columns, 0), 0};
  double sum = 0;
  for (std::size_t c = 0; c < columns; ++c)
    sum += mix.weights[c] = std::max(0.0, gain[variables + c]);
  if (!(sum > 0)) mix.weights[0] = sum = 1;
  for (double& weight : mix.weights) weight /= sum;
  mix.least = mean(mix.weights, rows[0]);
  for (const std::vector<double>& row : rows)
    mix.least = std::min(mix.least, mean(mix.weights, row));
  return mix;
}

}  // namespace motley::search
