#include "motley/base/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace motley {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

double upper_median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Scatter find_scatter(std::vector<double> values) {
  Scatter scatter;
  scatter.middle = upper_median(values);
  for (double& value : values) value = std::abs(value - scatter.middle);
  // The median, not the mean: one reading during a pause of the machine must not widen it.
  scatter.deviation = upper_median(std::move(values));
  return scatter;
}

void make_nondecreasing(std::vector<double>& values) {
  make_nondecreasing(values, std::vector<double>(values.size(), 1.0));
}

void make_nondecreasing(std::vector<double>& values, const std::vector<double>& weights) {
  struct Block {
    double sum, weight;
    std::size_t count;
    double mean() const { return sum / weight; }
  };
  // Merges a block with the one before it if it lies below; the merged block may lie below its own
  // predecessor. Each value is merged once: linear.
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < values.size(); ++i) {
    blocks.push_back({values[i] * weights[i], weights[i], 1});
    while (blocks.size() > 1 && blocks[blocks.size() - 2].mean() > blocks.back().mean()) {
      const Block last = blocks.back();
      blocks.pop_back();
      blocks.back().sum += last.sum;
      blocks.back().weight += last.weight;
      blocks.back().count += last.count;
    }
  }
  std::size_t next = 0;
  for (const Block& block : blocks)
    for (std::size_t i = 0; i < block.count; ++i) values[next++] = block.mean();
}

}  // namespace motley
