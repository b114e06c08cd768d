#include "peers/steps/drag.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace motley::peers {
namespace {

constexpr int kRounds = 50;
constexpr double kStill = 1e-9;

using Matrix = std::vector<std::vector<double>>;

double dot(const std::vector<double>& row, const std::vector<double>& x) {
  return std::inner_product(row.begin(), row.end(), x.begin(), 0.0);
}

std::vector<double> without_pace(const std::vector<GroupedTarget>& targets, const GroupedFit& fit) {
  std::vector<double> result;
  for (const GroupedTarget& target : targets)
    result.push_back(target.measured / fit.drag(target.group));
  return result;
}

/// Returns the groups' drags under the coefficients of `fit`. Rows with a price of 0 do not count.
std::vector<double> paces_of(const Matrix& rows, const std::vector<GroupedTarget>& targets,
                             const GroupedFit& fit) {
  std::vector<std::vector<double>> ratios(fit.drags.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double predicted = dot(rows[i], fit.coefficients);
    if (targets[i].group >= 0 && predicted > 0)
      ratios[static_cast<std::size_t>(targets[i].group)].push_back(targets[i].measured / predicted);
  }
  std::vector<double> drags;
  for (const auto& of_group : ratios) drags.push_back(estimate_drag(of_group));
  return drags;
}

double largest_move(const std::vector<double>& from, const std::vector<double>& to) {
  double move = 0;
  for (std::size_t i = 0; i < from.size(); ++i) move = std::max(move, std::abs(to[i] - from[i]));
  return move;
}

}  // namespace

double estimate_drag(const std::vector<double>& ratios) {
  double sum = 0;
  for (const double ratio : ratios) sum += std::log(ratio);
  return std::exp(sum / (static_cast<double>(ratios.size()) + 1));
}

double GroupedFit::drag(int group) const {
  const bool is_known = group >= 0 && group < static_cast<int>(drags.size());
  return is_known ? drags[static_cast<std::size_t>(group)] : 1.0;
}

Result<GroupedFit> fit_with_drags(const Matrix& rows, const std::vector<GroupedTarget>& targets,
                                  const cost::FitOptions& options) {
  int groups = 0;
  for (const GroupedTarget& target : targets) groups = std::max(groups, target.group + 1);
  GroupedFit fit;
  fit.drags.assign(static_cast<std::size_t>(groups), 1.0);
  for (int round = 0; round < kRounds; ++round) {
    MOTLEY_ASSIGN(fit.coefficients, fit_relative(rows, without_pace(targets, fit), options));
    std::vector<double> drags = paces_of(rows, targets, fit);
    const double move = largest_move(fit.drags, drags);
    fit.drags = std::move(drags);
    if (move < kStill) break;
  }
  return fit;
}

}  // namespace motley::peers
