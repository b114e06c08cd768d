#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "peers/policies/noise_estimators.h"
#include "peers/policies/pass_policy.h"

namespace motley::peers {

/// AdaptDL 0.2 (Pollux, OSDI'21) for one training: at the start of each pass over the data it takes
/// the best of 50 batches by goodput, split evenly, if it is more than 1.05 times as good as the
/// present one. Its own fit assumes one kind of device; here it gets the even split's true step.
class AdaptDlPolicy : public PassPolicy {
 public:
  AdaptDlPolicy(PassSettings settings, std::unique_ptr<adapt::OptionSource> source)
      : PassPolicy(std::move(settings), std::move(source), estimate_by_mean) {}
  std::string_view name() const override { return "adaptdl"; }

 private:
  std::vector<policy::Choice> end_pass() override;
};

/// Cannikin (Middleware 2024): one pass evenly, one in inverse proportion to the time per sample.
/// Then each pass takes the best of AdaptDL's candidates by the least step over straight lines
/// through each device's last two numbers of samples. Noise by the published matrices.
class CannikinPolicy : public PassPolicy {
 public:
  CannikinPolicy(PassSettings settings, std::unique_ptr<adapt::OptionSource> source)
      : PassPolicy(std::move(settings), std::move(source), estimate_by_matrices) {}
  std::string_view name() const override { return "cannikin"; }

 private:
  /// Mean work at a number of samples.
  struct Measured {
    double samples = 0, seconds = 0, steps = 0;
  };
  /// A device's last two measurements.
  struct Line {
    Measured before, last;
  };
  void see_step(const policy::StepSeen& step) override;
  std::vector<policy::Choice> end_pass() override;
  std::vector<double> own_numbers() const override;
  bool take_numbers(const std::vector<double>& numbers) override;
  adapt::BatchOption learned() const;

  std::vector<Line> lines_;  // of the largest option's devices
};

/// SimiGrad's rule in JABAS: every 100 steps it compares the gradients of two halves of the batch.
/// Below the target similarity the batch grows by a tenth, else it shrinks by one. Split evenly.
/// Here similarity comes from all the step's pieces, which is steadier.
class SimiGradPolicy : public PassPolicy {
 public:
  SimiGradPolicy(PassSettings settings, std::unique_ptr<adapt::OptionSource> source)
      : PassPolicy(std::move(settings), std::move(source), adapt::estimate_moments) {}
  std::string_view name() const override { return "simigrad"; }

 protected:
  std::vector<policy::Choice> see_noise(const policy::NoiseSeen& seen) override;
  std::vector<double> own_numbers() const override { return {wanted_}; }
  bool take_numbers(const std::vector<double>& numbers) override;
  virtual std::vector<std::int64_t> split(const adapt::BatchOption& option,
                                          std::int64_t batch) const;
  double wanted() const { return wanted_; }

 private:
  double wanted_ = 0;  // batch; 0: none yet
};

/// JABAS (EuroSys 2025): SimiGrad's batch by `split_identical`; after each pass the fastest (or
/// cheapest) group for it. Without its forecast, since a constant batch predicts better.
class JabasPolicy : public SimiGradPolicy {
 public:
  using SimiGradPolicy::SimiGradPolicy;
  std::string_view name() const override { return "jabas"; }

 private:
  std::vector<policy::Choice> end_pass() override;
  std::vector<std::int64_t> split(const adapt::BatchOption& option,
                                  std::int64_t batch) const override;
};

/// Finds IIDP's split: the same local batch for all workers, more workers on a faster device,
/// identical pairs of neighbouring devices, so that the batch is rounded up to a multiple of two
/// local batches. Among local batches that give at most `most` samples it takes the one with the
/// most samples per second. Empty: none.
std::vector<std::int64_t> split_identical(const adapt::BatchOption& option, std::int64_t batch,
                                          const std::vector<std::int64_t>& local_batches,
                                          double most = std::numeric_limits<double>::infinity());

}  // namespace motley::peers
