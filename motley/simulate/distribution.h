#pragma once

#include <cstddef>
#include <vector>

namespace motley::simulate {

/// Samples of a number, in ascending order. Measures of no samples are 0.
class Distribution {
 public:
  Distribution() = default;
  explicit Distribution(std::vector<double> samples);

  std::size_t count() const { return samples_.size(); }
  double mean() const;
  double deviation() const;  ///< standard deviation of the samples about their mean (n - 1)
  /// The value below which a share p in [0, 1] of the samples lies: linear between the samples,
  /// of which the lowest is at 0 and the highest at 1.
  double quantile(double p) const;
  double median() const { return quantile(0.5); }
  const std::vector<double>& samples() const { return samples_; }
  bool operator==(const Distribution&) const = default;

 private:
  std::vector<double> samples_;
};

}  // namespace motley::simulate
