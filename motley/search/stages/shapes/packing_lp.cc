#include "motley/search/stages/shapes/packing_lp.h"

#include <algorithm>
#include <utility>

namespace motley::search {
namespace {

constexpr double kTolerance = 1e-9;  // relative, to a column's value and to entries
constexpr int kStepsBeforeBland = 200;

}  // namespace

PackingLp::PackingLp(std::vector<double> limits)
    : rows_(limits.size()), inverse_(rows_ * rows_, 0.0), levels_(std::move(limits)) {
  for (std::size_t row = 0; row < rows_; ++row) {
    columns_.push_back({0, std::vector<double>(rows_, 0.0)});
    columns_.back().entries[row] = 1;
    basis_.push_back(row);
    is_basic_.push_back(true);
    inverse_[row * rows_ + row] = 1;
  }
  prices_.assign(rows_, 0);
}

std::size_t PackingLp::add(double value, std::vector<double> entries) {
  columns_.push_back({value, std::move(entries)});
  is_basic_.push_back(false);
  return columns_.size() - 1 - rows_;
}

double PackingLp::reduced(std::size_t column) const {
  double value = columns_[column].value;
  for (std::size_t row = 0; row < rows_; ++row)
    value -= prices_[row] * columns_[column].entries[row];
  return value;
}

bool PackingLp::step(bool bland) {
  for (std::size_t row = 0; row < rows_; ++row) {
    prices_[row] = 0;
    for (std::size_t k = 0; k < rows_; ++k)
      prices_[row] += columns_[basis_[k]].value * inverse_[k * rows_ + row];
  }
  std::size_t entering = columns_.size();
  double most = 0;
  for (std::size_t column = 0; column < columns_.size(); ++column) {
    if (is_basic_[column]) continue;
    const double gain = reduced(column);
    if (gain <= kTolerance * std::max(1.0, columns_[column].value) || gain <= most) continue;
    most = gain;
    entering = column;
    if (bland) break;
  }
  if (entering == columns_.size()) return false;
  std::vector<double> direction(rows_, 0);
  for (std::size_t k = 0; k < rows_; ++k)
    for (std::size_t row = 0; row < rows_; ++row)
      direction[k] += inverse_[k * rows_ + row] * columns_[entering].entries[row];
  std::size_t leaving = rows_;
  for (std::size_t k = 0; k < rows_; ++k) {
    if (direction[k] <= kTolerance) continue;
    if (leaving == rows_) {
      leaving = k;
      continue;
    }
    const double here = levels_[k] * direction[leaving], best = levels_[leaving] * direction[k];
    if (here < best || (here == best && basis_[k] < basis_[leaving])) leaving = k;
  }
  if (leaving == rows_) return false;  // impossible if entries are >= 0 and one is above 0
  const double amount = levels_[leaving] / direction[leaving];
  for (std::size_t k = 0; k < rows_; ++k) {
    if (k == leaving) continue;
    levels_[k] = std::max(0.0, levels_[k] - amount * direction[k]);
    const double factor = direction[k] / direction[leaving];
    for (std::size_t row = 0; row < rows_; ++row)
      inverse_[k * rows_ + row] -= factor * inverse_[leaving * rows_ + row];
  }
  for (std::size_t row = 0; row < rows_; ++row)
    inverse_[leaving * rows_ + row] /= direction[leaving];
  levels_[leaving] = amount;
  is_basic_[basis_[leaving]] = false;
  is_basic_[entering] = true;
  basis_[leaving] = entering;
  return true;
}

double PackingLp::solve() {
  for (int steps = 0; step(steps > kStepsBeforeBland); ++steps) continue;
  for (double& price : prices_) price = std::max(0.0, price);
  double value = 0;
  for (std::size_t k = 0; k < rows_; ++k) value += columns_[basis_[k]].value * levels_[k];
  return value;
}

std::vector<double> PackingLp::amounts() const {
  std::vector<double> amounts(columns_.size() - rows_, 0.0);
  for (std::size_t k = 0; k < rows_; ++k)
    if (basis_[k] >= rows_) amounts[basis_[k] - rows_] = levels_[k];
  return amounts;
}

}  // namespace motley::search
