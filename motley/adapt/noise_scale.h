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
  double steps = 0;   ///< effective number of measured steps in its average
  double memory = 0;  ///< length of its average (NoiseOptions::memories)
};

struct NoiseOptions {
  double initial_batch = 1;
  /// Ascending, in steps of the initial batch; a step of batch B counts as B / initial_batch.
  std::vector<double> memories = {62.5, 250, 1000, 4000};
  double deviations = 1.96;  ///< half width of the interval, of a normal distribution
  std::optional<NoiseMoments> (*estimate)(const policy::NoiseSeen&) = estimate_moments;
};

/// Learns the noise scale over steps. |G|^2 and S are averaged separately (a single step's ratio is
/// biased), exponentially, without bias at the start, over several memories at once. It uses the
/// longest memory whose interval meets those of all shorter ones (Lepski's rule) and is narrower,
/// as longer ones are unless they span a change: precise while nothing moves, and it forgets after
/// a change. The interval is Fieller's for a ratio of two means, from the spread between steps,
/// with Student's factor for the effective number of steps. So it assumes no dimension of the
/// noise, and is unknown where |G|^2 is not distinguished from zero. Skips steps without moments
/// (noise_estimate.h). O(pieces) per step.
class NoiseScale {
 public:
  explicit NoiseScale(NoiseOptions options);

  /// `passed`: samples of unmeasured steps since the last one added; they age the averages too.
  void add(const policy::NoiseSeen& seen, double passed = 0);
  /// Returns nothing before four steps.
  std::optional<NoiseInterval> interval() const;
  /// Returns the ratio of the averages over the longest memory alone, as AdaptDL does with its
  /// bounds (|G|^2 >= 0, S >= 1e-6). Infinite where |G|^2 <= 0; nothing before a step.
  std::optional<double> plain_ratio() const;

  Json state() const;
  /// Usage error `adapt.state`: not a state of these options.
  Result<void> restore(const Json& state, const std::string& where);

 private:
  /// Weighted means of |G|^2 and S, and sums of weighted products of their deviations.
  struct Average {
    double weight = 0, squared_weights = 0;
    double gradient = 0, variance = 0;
    double gradient_square = 0, variance_square = 0, product = 0;
  };
  std::optional<NoiseInterval> find_interval(std::size_t memory) const;

  NoiseOptions options_;
  std::vector<Average> averages_;  // one per memory
};

}  // namespace motley::adapt
