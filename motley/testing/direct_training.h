#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "motley/testing/small_model.h"

namespace motley::run {

/// Training on one device in double precision: SGD at a rate of 0.1 with a momentum of 0.9.
class DirectTraining {
 public:
  static constexpr double kRate = 0.1, kMomentum = 0.9;

  explicit DirectTraining(const SmallModel& model) : model_(model), given_(model.given) {}

  /// Runs further steps of `batch` samples each and records their losses.
  DirectTraining& run(std::int64_t steps, std::int64_t batch, double lr_factor = 1) {
    for (std::int64_t step = 0; step < steps; ++step, taken += batch) {
      const testing::StepValues values = gradients(taken, batch);
      losses.push_back(values.loss);
      for (const auto& [name, gradient] : values.gradients) {
        testing::Tensor& moved =
            momenta.emplace(name, testing::filled(gradient.shape, 0)).first->second;
        for (std::size_t i = 0; i < gradient.at.size(); ++i) {
          moved.at[i] = kMomentum * moved.at[i] + gradient.at[i];
          given_.at(name).at[i] -= kRate * lr_factor * moved.at[i];
        }
      }
    }
    return *this;
  }

  /// Returns mean loss and gradients of `batch` samples from `first` on, at the present weights.
  testing::StepValues gradients(std::int64_t first, std::int64_t batch) const {
    return testing::run_graph(model_.graph, batch, with_samples(first, batch));
  }
  /// Returns loss and metric of all samples.
  std::pair<double, double> evaluate() const {
    const auto values = testing::evaluate_graph(model_.evaluation, SmallModel::kSamples, given_);
    return {values.at(BufferId(12)).at[0], values.at(BufferId(14)).at[0]};
  }
  const testing::Tensor& weight(const std::string& name) const { return given_.at(name); }

  std::vector<double> losses;
  testing::NamedTensors momenta;
  std::int64_t taken = 0;

 private:
  testing::NamedTensors with_samples(std::int64_t first, std::int64_t batch) const {
    testing::NamedTensors given = given_;
    given.at("x") = testing::filled({batch, 12}, 0);
    given.at("y") = testing::filled({batch}, 0);
    for (std::int64_t i = 0; i < batch; ++i) {
      const std::int64_t sample = (first + i) % SmallModel::kSamples;
      std::copy_n(given_.at("x").at.begin() + sample * 12, 12, given.at("x").at.begin() + i * 12);
      given.at("y").at[static_cast<std::size_t>(i)] =
          given_.at("y").at[static_cast<std::size_t>(sample)];
    }
    return given;
  }

  const SmallModel& model_;
  testing::NamedTensors given_;
};

}  // namespace motley::run
