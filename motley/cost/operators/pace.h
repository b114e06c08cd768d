#pragma once

#include <vector>

#include "motley/base/units.h"

namespace motley::cost {

/// At what part of full speed a device does a step, by how much compute the step has for it. A
/// device that is emulated pays for its pauses and for neighbours that share its machine; the more
/// it has to do, the less short pauses weigh. It counts how long the whole step would take at full
/// speed, whichever program that is: a split of the batch and a sharding that compute the same take
/// the same.
///
/// Example: 10 ms done at 0.4 and 90 ms at 0.2; 30 ms, in the middle of their logarithms, at 0.3.
class Pace {
 public:
  struct Sample {
    Seconds compute;  ///< of a whole step at full speed, > 0
    double speed = 1;
    bool operator==(const Sample&) const = default;
  };
  /// The same for all steps.
  Pace() : Pace(1.0) {}
  explicit Pace(double speed) : samples_{{Seconds(1), speed}} {}
  /// As measured; one sample or more, in any order.
  explicit Pace(std::vector<Sample> samples);

  /// Linear in the logarithm of the compute between samples, constant outside.
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
