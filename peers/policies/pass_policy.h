#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "motley/adapt/batch_policy.h"
#include "motley/adapt/option_source.h"
#include "motley/base/json.h"
#include "motley/policy/policy.h"

namespace motley::peers {

/// The inputs of published batch policies.
struct PassSettings {
  double initial_batch = 1;
  adapt::BatchBounds bounds;
  adapt::LearningRateRule rule = adapt::LearningRateRule::kAdaScale;
  adapt::ObjectiveKind objective = adapt::ObjectiveKind::kTime;  ///< time or cost
  std::int64_t samples_per_pass = 1;                             ///< of the data
  double similarity = 0.1;                                       ///< target (simigrad, jabas)
  std::vector<std::int64_t> local_batches;  ///< per worker, to choose from (jabas)
};

/// Returns the nearest batch of whole units; of two the larger.
std::int64_t batch_near(const adapt::BatchOption& option, double samples);

/// Gives every device the same number of units, the first ones one more, without caps or remainder.
std::vector<std::int64_t> split_evenly(std::size_t devices, std::int64_t batch,
                                       std::int64_t unit = 1);

using EstimateNoise = std::optional<adapt::NoiseMoments> (*)(const policy::NoiseSeen&);

/// Base of policies that count passes and train on the largest group. They act in `see_noise` and
/// `end_pass` by `use_batch`. State: `own_numbers`, restored by `take_numbers`.
class PassPolicy : public policy::Policy {
 public:
  PassPolicy(PassSettings settings, std::unique_ptr<adapt::OptionSource> source,
             EstimateNoise estimate);

  std::vector<policy::Choice> observe(const policy::Observation& observation) override;
  Json state() const override;
  Result<void> restore(const Json& state, const std::string& where) override;

 protected:
  virtual std::vector<policy::Choice> see_noise(const policy::NoiseSeen&) { return {}; }
  virtual std::vector<policy::Choice> end_pass() { return {}; }
  virtual void see_step(const policy::StepSeen&) {}
  virtual std::vector<double> own_numbers() const { return {}; }
  virtual bool take_numbers(const std::vector<double>& numbers) { return numbers.empty(); }

  const PassSettings& settings() const { return settings_; }
  const adapt::BatchOption& all() const { return options()[largest_]; }
  const adapt::BatchOption& option() const;  ///< that of the last step, else `all`
  const std::vector<adapt::BatchOption>& options() const { return source_->options(); }
  const adapt::NoiseScale& noise() const { return noise_; }
  std::int64_t passes() const { return passes_; }  ///< finished
  std::int64_t batch() const { return batch_; }    ///< of the last step
  /// Returns AdaptDL's candidates in whole units: 50 batches in equal ratios, least to most.
  std::vector<std::int64_t> candidates() const;
  std::vector<policy::Choice> use_batch(const adapt::BatchOption& option,
                                        const std::vector<std::int64_t>& samples,
                                        std::string why) const;

 private:
  PassSettings settings_;
  std::unique_ptr<adapt::OptionSource> source_;
  adapt::NoiseScale noise_;
  std::size_t largest_ = 0;
  int current_ = -1;
  std::int64_t batch_ = 0, passes_ = 0, samples_ = 0;
};

}  // namespace motley::peers
