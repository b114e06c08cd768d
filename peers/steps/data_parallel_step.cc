#include "peers/steps/data_parallel_step.h"

#include <fmt/format.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <map>

#include "motley/base/check.h"
#include "motley/base/statistics.h"

namespace motley::peers {
namespace {

using Eigen::Vector3d;
using Eigen::VectorXd;

constexpr int kSolverRounds = 100;
constexpr double kSolverStill = 1e-12;

double compute_time(const DataParallelStep& model, double batch) {
  const auto& points = model.compute;
  MOTLEY_CHECK(!points.empty());
  if (points.size() == 1) return points[0].second.value * batch / points[0].first;
  std::size_t right = 1;
  while (right + 1 < points.size() && points[right].first < batch) ++right;
  const auto& [from, low] = points[right - 1];
  const auto& [to, high] = points[right];
  return std::max(0.0, low.value + (high - low).value * (batch - from) / (to - from));
}

std::vector<std::pair<double, Seconds>> compute_curve(
    const std::vector<DataParallelSample>& samples) {
  std::map<double, std::vector<double>> times;
  for (const DataParallelSample& sample : samples)
    if (sample.replicas == 1) times[sample.batch].push_back(sample.measured.value);
  std::vector<std::pair<double, Seconds>> curve;
  for (auto& [batch, at] : times) {
    curve.emplace_back(batch, Seconds(median(std::move(at))));
  }
  return curve;
}

/// The constants as logarithms: base, doubling, p - 1.
DataParallelStep with_constants(DataParallelStep model, const Vector3d& x) {
  model.base = Seconds(std::exp(x(0)));
  model.doubling = Seconds(std::exp(x(1)));
  model.power = 1 + std::exp(x(2));
  return model;
}

VectorXd residuals(const DataParallelStep& model, const std::vector<DataParallelSample>& samples) {
  VectorXd result(static_cast<Eigen::Index>(samples.size()));
  for (std::size_t i = 0; i < samples.size(); ++i)
    result(static_cast<Eigen::Index>(i)) =
        estimate_step(model, samples[i].batch, samples[i].replicas) / samples[i].measured - 1;
  return result;
}

struct Descent {
  DataParallelStep model;
  double loss = 0;
};

/// Levenberg and Marquardt with differences for derivatives, from base and doubling `start` s.
Descent descend(const DataParallelStep& shape, const std::vector<DataParallelSample>& samples,
                double start, double power) {
  Vector3d x(std::log(start), std::log(start), std::log(power - 1));
  VectorXd r = residuals(with_constants(shape, x), samples);
  double damping = 1e-2;
  for (int round = 0; round < kSolverRounds; ++round) {
    Eigen::Matrix<double, Eigen::Dynamic, 3> slope(r.size(), 3);
    for (int k = 0; k < 3; ++k) {
      const double h = 1e-6;
      slope.col(k) = (residuals(with_constants(shape, x + h * Vector3d::Unit(k)), samples) - r) / h;
    }
    Eigen::Matrix3d a = slope.transpose() * slope;
    a.diagonal().array() += damping * (a.trace() / 3 + 1e-12);
    // A constant that has become negligible would run to minus infinity, one step at most e^2.
    const Vector3d step = a.ldlt().solve(-slope.transpose() * r).cwiseMax(-2).cwiseMin(2);
    const Vector3d next = (x + step).cwiseMax(-30).cwiseMin(5);
    const VectorXd at_next = residuals(with_constants(shape, next), samples);
    const bool is_better = at_next.squaredNorm() < r.squaredNorm();
    const bool is_still = r.squaredNorm() - at_next.squaredNorm() < kSolverStill;
    damping = is_better ? damping / 5 : damping * 5;
    if (is_better) x = next, r = at_next;
    if ((is_better && is_still) || damping > 1e12) break;
  }
  return {with_constants(shape, x), r.squaredNorm()};
}

}  // namespace

Seconds estimate_step(const DataParallelStep& model, double batch, std::int64_t replicas) {
  const double compute = compute_time(model, batch);
  const double exchange =
      model.base.value + model.doubling.value * std::log2(static_cast<double>(replicas));
  const double larger = std::max(compute, exchange), smaller = std::min(compute, exchange);
  if (!(larger > 0)) return Seconds(0);
  return Seconds(larger * std::pow(1 + std::pow(smaller / larger, model.power), 1 / model.power));
}

Result<DataParallelStep> fit_step(const std::vector<DataParallelSample>& samples) {
  DataParallelStep shape;
  shape.compute = compute_curve(samples);
  if (shape.compute.empty())
    return usage_error("cost.fit", "no sample of one replica, wanted some for the compute times");
  std::vector<DataParallelSample> spread;
  for (const DataParallelSample& sample : samples)
    if (sample.hosts > 1) spread.push_back(sample);
  if (spread.size() < 3)
    return usage_error(
        "cost.fit",
        fmt::format("{} samples of more than one host, wanted three or more", spread.size()));
  Descent best{shape, std::numeric_limits<double>::infinity()};
  for (const double power : {1.2, 2.0, 5.0}) {
    Descent found = descend(shape, spread, spread[0].measured.value / 4, power);
    if (found.loss < best.loss) best = std::move(found);
  }
  return best.model;
}

}  // namespace motley::peers
