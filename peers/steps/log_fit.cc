#include "peers/steps/log_fit.h"

#include <fmt/format.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

#include "motley/base/check.h"

namespace motley::peers {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

constexpr int kFitRounds = 50;
constexpr double kStep = 1e-5;
constexpr double kEnough = 1e-7;  // relative decrease of the sum of squares that ends the fit
constexpr double kLeastDamping = 1e-9, kMostDamping = 1e6;

class Residuals {
 public:
  Residuals(const Predictor& predict, const std::vector<double>& targets,
            const std::vector<LogPrior>& priors, double error_spread)
      : predict_(predict), targets_(targets), priors_(priors), error_spread_(error_spread) {}

  VectorXd start() const {
    VectorXd x(static_cast<Index>(priors_.size()));
    for (Index j = 0; j < x.size(); ++j) x(j) = std::log(prior(j).value);
    return x;
  }

  VectorXd at(const VectorXd& x) const {
    std::vector<double> parameters;
    for (const double log : x) parameters.push_back(std::exp(log));
    const std::vector<double> predicted = predict_(parameters);
    MOTLEY_CHECK(predicted.size() == targets_.size());
    const auto count = static_cast<Index>(targets_.size());
    VectorXd terms(count + x.size());
    for (Index i = 0; i < count; ++i) {
      const auto k = static_cast<std::size_t>(i);
      terms(i) = std::log(predicted[k] / targets_[k]) / error_spread_;
    }
    for (Index j = 0; j < x.size(); ++j)
      terms(count + j) = (x(j) - std::log(prior(j).value)) / prior(j).spread;
    return terms;
  }

  MatrixXd slopes(const VectorXd& x, const VectorXd& terms) const {
    MatrixXd slopes(terms.size(), x.size());
    for (Index j = 0; j < x.size(); ++j) {
      VectorXd moved = x;
      moved(j) += kStep;
      slopes.col(j) = (at(moved) - terms) / kStep;
    }
    return slopes;
  }

 private:
  const LogPrior& prior(Index j) const { return priors_[static_cast<std::size_t>(j)]; }

  const Predictor& predict_;
  const std::vector<double>& targets_;
  const std::vector<LogPrior>& priors_;
  double error_spread_;
};

/// Takes one accepted step; false where none reduces the sum.
bool improve(const Residuals& residuals, VectorXd& x, VectorXd& terms, double& damping) {
  const MatrixXd slopes = residuals.slopes(x, terms);
  const MatrixXd normal = slopes.transpose() * slopes;
  const VectorXd gradient = slopes.transpose() * terms;
  for (; damping <= kMostDamping; damping *= 10) {
    MatrixXd damped = normal;
    damped.diagonal() *= 1 + damping;
    const VectorXd next = x - damped.ldlt().solve(gradient);
    if (!next.allFinite()) continue;
    const VectorXd next_terms = residuals.at(next);
    if (!(next_terms.squaredNorm() < terms.squaredNorm())) continue;
    const double decrease = 1 - next_terms.squaredNorm() / terms.squaredNorm();
    x = next;
    terms = next_terms;
    damping = std::max(damping / 10, kLeastDamping);
    return decrease > kEnough;
  }
  return false;
}

}  // namespace

Result<std::vector<double>> fit_log_parameters(const Predictor& predict,
                                               const std::vector<double>& targets,
                                               const std::vector<LogPrior>& priors,
                                               double error_spread) {
  if (targets.empty()) return usage_error("cost.fit", "a fit without targets");
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (!(targets[i] > 0) || !std::isfinite(targets[i]))
      return usage_error("cost.fit",
                         fmt::format("target {} is {}, wanted more than 0", i, targets[i]));
  }
  const Residuals residuals(predict, targets, priors, error_spread);
  VectorXd x = residuals.start();
  VectorXd terms = residuals.at(x);
  double damping = 1e-3;
  for (int round = 0; round < kFitRounds && improve(residuals, x, terms, damping); ++round)
    continue;
  std::vector<double> parameters;
  for (const double log : x) parameters.push_back(std::exp(log));
  return parameters;
}

}  // namespace motley::peers
