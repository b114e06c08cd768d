#pragma once

#include <vector>

#include "motley/base/units.h"

namespace motley::cost {

/// The fraction of full speed at which a device runs a step, by the compute of the step. An
/// emulated device pays for its pauses and for neighbours on its machine; short pauses weigh less
/// in longer steps. The compute is the time of the whole step at full speed for any program: a
/// split of the batch and a sharding with the same compute take the same time.
///
/// Example: 0.4 at 10 ms and 0.2 at 90 ms; 30 ms, the middle of their logarithms, runs at 0.3.
class Pace {
 public:
  struct Sample {
    Seconds compute;  ///< of a whole step at full speed, > 0
    double speed = 1;
    bool operator==(const Sample&) const = default;
  };
  Pace() : Pace(1.0) {}
  explicit Pace(double speed) : samples_{{Seconds(1), speed}} {}
  /// Takes one or more measurements, in any order.
  explicit Pace(std::vector<Sample> samples);

  /// Returns the speed, linear in the logarithm of the compute between samples, constant outside.
  double at(Seconds compute) const;
  double fastest() const;
  Pace at_most(double speed) const;
  const std::vector<Sample>& samples() const { return samples_; }
  bool is_constant() const { return samples_.size() == 1; }
  bool operator==(const Pace&) const = default;

 private:
  std::vector<Sample> samples_;  // by compute, strictly ascending
};

}  // namespace motley::cost
