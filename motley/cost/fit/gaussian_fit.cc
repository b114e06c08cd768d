#include "motley/cost/fit/gaussian_fit.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

#include "motley/base/check.h"

namespace motley::cost {
namespace {

using Square = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Column = Eigen::VectorXd;

Column column_of(const std::vector<double>& values) {
  return Eigen::Map<const Column>(values.data(), static_cast<Eigen::Index>(values.size()));
}

}  // namespace

struct GaussianFit::Solved {
  Eigen::LLT<Square> factor;
  Column weights;  // K^-1 y
};

GaussianFit::GaussianFit(const std::vector<double>& covariances, const std::vector<double>& values)
    : solved_(std::make_unique<Solved>()) {
  MOTLEY_CHECK(covariances.size() == values.size() * values.size());
  const auto n = static_cast<Eigen::Index>(values.size());
  solved_->factor.compute(Eigen::Map<const Square>(covariances.data(), n, n));
  MOTLEY_CHECK(solved_->factor.info() == Eigen::Success);
  solved_->weights = solved_->factor.solve(column_of(values));
}

GaussianFit::~GaussianFit() = default;

Estimate GaussianFit::at(const std::vector<double>& covariances, double variance) const {
  const Column c = column_of(covariances);
  const double known = c.dot(solved_->factor.solve(c));
  return {c.dot(solved_->weights), std::sqrt(std::max(0.0, variance - known))};
}

}  // namespace motley::cost
