#pragma once

#include <cstddef>
#include <vector>

namespace motley::simulate {

/// Samples in ascending order. Statistics of no samples are 0.
class Distribution {
 public:
  Distribution() = default;
  explicit Distribution(std::vector<double> samples);

  std::size_t count() const { return samples_.size(); }
  double mean() const;
  double deviation() const;  ///< sample standard deviation (n - 1)
  /// Returns the p-quantile, p in [0, 1], linear between samples; 0 is the lowest, 1 the highest.
  double quantile(double p) const;
  double median() const { return quantile(0.5); }
  const std::vector<double>& samples() const { return samples_; }
  bool operator==(const Distribution&) const = default;

 private:
  std::vector<double> samples_;
};

}  // namespace motley::simulate
