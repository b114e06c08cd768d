#include "motley/cost/fit/least_squares.h"

#include <fmt/format.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

namespace motley::cost {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;

constexpr double kTolerance = 1e-10;

VectorXd solve_on(const MatrixXd& a, const VectorXd& b, const std::vector<Eigen::Index>& free) {
  MatrixXd part(a.rows(), static_cast<Eigen::Index>(free.size()));
  for (std::size_t i = 0; i < free.size(); ++i)
    part.col(static_cast<Eigen::Index>(i)) = a.col(free[i]);
  const VectorXd solved = part.completeOrthogonalDecomposition().solve(b);
  VectorXd x = VectorXd::Zero(a.cols());
  for (std::size_t i = 0; i < free.size(); ++i) x(free[i]) = solved(static_cast<Eigen::Index>(i));
  return x;
}

/// Moves x towards `wanted` as far as all stay >= 0, and drops those that reach 0 from `free`.
void step_back(VectorXd& x, const VectorXd& wanted, std::vector<Eigen::Index>& free) {
  double share = 1;
  for (const Eigen::Index i : free)
    if (wanted(i) <= 0) share = std::min(share, x(i) / (x(i) - wanted(i)));
  x += share * (wanted - x);
  std::erase_if(free, [&](Eigen::Index i) {
    if (x(i) > kTolerance) return false;
    x(i) = 0;
    return true;
  });
}

VectorXd solve_nonnegative(const MatrixXd& a, const VectorXd& b) {
  VectorXd x = VectorXd::Zero(a.cols());
  std::vector<Eigen::Index> free;
  // Each round reduces the residual, so no set of free columns repeats.
  for (Eigen::Index round = 0; round < 10 * a.cols(); ++round) {
    VectorXd gain = a.transpose() * (b - a * x);
    for (const Eigen::Index i : free) gain(i) = 0;
    Eigen::Index best = 0;
    if (gain.maxCoeff(&best) <= kTolerance) break;
    free.push_back(best);
    VectorXd wanted = solve_on(a, b, free);
    while (!free.empty() &&
           std::any_of(free.begin(), free.end(), [&](Eigen::Index i) { return wanted(i) <= 0; })) {
      step_back(x, wanted, free);
      wanted = solve_on(a, b, free);
    }
    x = wanted;
  }
  return x;
}

}  // namespace

Result<std::vector<double>> fit_relative(const std::vector<std::vector<double>>& rows,
                                         const std::vector<double>& targets,
                                         const FitOptions& options) {
  if (rows.empty() || rows.size() != targets.size())
    return usage_error("cost.fit",
                       fmt::format("a fit of {} rows to {} targets", rows.size(), targets.size()));
  const auto columns = static_cast<Eigen::Index>(rows[0].size());
  const auto count = static_cast<Eigen::Index>(rows.size());
  const Eigen::Index penalties = options.ridge > 0 ? columns : 0;
  MatrixXd a = MatrixXd::Zero(count + penalties, columns);
  VectorXd b = VectorXd::Zero(count + penalties);
  for (Eigen::Index i = 0; i < count; ++i) {
    const auto& row = rows[static_cast<std::size_t>(i)];
    const double target = targets[static_cast<std::size_t>(i)];
    if (static_cast<Eigen::Index>(row.size()) != columns || !(target > 0))
      return usage_error(
          "cost.fit", fmt::format("row {}: {} terms, wanted {}; target {}, wanted more than 0", i,
                                  row.size(), columns, target));
    for (Eigen::Index j = 0; j < columns; ++j) a(i, j) = row[static_cast<std::size_t>(j)] / target;
    b(i) = 1;
  }
  VectorXd scale = a.topRows(count).cwiseAbs().colwise().mean();
  for (Eigen::Index j = 0; j < columns; ++j) {
    if (!(scale(j) > 0)) scale(j) = 1;
    a.col(j) /= scale(j);
    if (penalties > 0) a(count + j, j) = std::sqrt(options.ridge * static_cast<double>(count));
  }
  const VectorXd x = options.is_nonnegative
                         ? solve_nonnegative(a, b)
                         : VectorXd(a.completeOrthogonalDecomposition().solve(b));
  std::vector<double> result;
  for (Eigen::Index j = 0; j < columns; ++j) result.push_back(x(j) / scale(j));
  return result;
}

}  // namespace motley::cost
