#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "motley/adapt/noise_estimate.h"
#include "motley/base/json_forward.h"
#include "motley/base/result.h"

namespace motley::adapt {

/// The noise scale S / |G|^2 in samples: the batch at which noise and gradient weigh the same in a
/// step (McCandlish et al. 2018, "simple" noise scale). `estimate` and `high` may be infinite.
struct NoiseInterval {
  double low = 0, estimate = 0, high = 0;
  double steps = 0;   ///< measured ones that count in the average that it is from
  double memory = 0;  ///< its length (NoiseOptions::memories)
};

struct NoiseOptions {
  double initial_batch = 1;
  /// Lengths of the averages, in steps of the initial batch, ascending: a step of batch B counts as
  /// B / initial_batch of them.
  std::vector<double> memories = {62.5, 250, 1000, 4000};
  double deviations = 1.96;  ///< half width of the interval, of a normal distribution
  std::optional<NoiseMoments> (*estimate)(const policy::NoiseSeen&) = estimate_moments;
};

/// Learns the noise scale over steps. |G|^2 and S are averaged apart (their ratio of a single step
/// is biased), exponentially, without bias at the start, over several memories at once. Used is the
/// longest whose interval meets those of all shorter ones (Lepski's rule) and is narrower, as a
/// longer one is unless it spans a change: where nothing moves it is precise, and after a change it
/// forgets. The interval is Fieller's of a ratio of two means, from the spread between steps, with
/// Student's factor for the number of steps that count. So it needs no assumption on the dimension
/// of the noise, and says "unknown" where |G|^2 is not yet told from zero. Steps that give no
/// moments (noise_estimate.h) are passed over. O(pieces) a step.
class NoiseScale {
 public:
  explicit NoiseScale(NoiseOptions options);

  /// `passed`: samples of steps since the last one that was added, which were not measured: what
  /// is known ages by them, too.
  void add(const policy::NoiseSeen& seen, double passed = 0);
  /// Nothing before four steps.
  std::optional<NoiseInterval> interval() const;
  /// Ratio of the averages over the longest memory, without interval or rule: what AdaptDL uses,
  /// with its bounds (|G|^2 >= 0, S >= 1e-6). Infinite where |G|^2 <= 0; nothing before a step.
  std::optional<double> plain_ratio() const;

  Json state() const;
  /// Usage error `adapt.state`: not a state of these options.
  Result<void> restore(const Json& state, const std::string& where);

 private:
  /// Weighted means, and sums of weighted products of deviations, of |G|^2 and S.
  struct Average {
    double weight = 0, squared_weights = 0;
    double gradient = 0, variance = 0;
    double gradient_square = 0, variance_square = 0, product = 0;
  };
  std::optional<NoiseInterval> find_interval(std::size_t memory) const;

  NoiseOptions options_;
  std::vector<Average> averages_;  // one a memory
};

}  // namespace motley::adapt
