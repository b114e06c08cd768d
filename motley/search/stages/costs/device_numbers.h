#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "motley/search/stages/costs/stage_costs.h"

namespace motley::search {

/// Numbers sets of devices by their counts per pool: 0 is the empty set, size() - 1 the full one,
/// and the number of a disjoint union is the sum.
class DeviceNumbers {
 public:
  explicit DeviceNumbers(const std::vector<DevicePool>& pools) {
    for (const DevicePool& pool : pools) add_pool(pool.devices);
  }
  explicit DeviceNumbers(const std::vector<int>& devices) {
    for (const int count : devices) add_pool(count);
  }

  std::size_t size() const { return size_; }
  std::size_t of(const StageUnit& unit) const {
    std::size_t set = 0;
    for (const UnitPart& part : unit.parts)
      set += strides_[part.pool] * static_cast<std::size_t>(part.devices);
    return set;
  }
  std::size_t of(const std::vector<int>& devices) const {
    std::size_t set = 0;
    for (std::size_t pool = 0; pool < strides_.size(); ++pool)
      set += strides_[pool] * static_cast<std::size_t>(devices[pool]);
    return set;
  }
  std::size_t count(std::size_t set, std::size_t pool) const {
    return set / strides_[pool] % counts_[pool];
  }
  bool has_room(std::size_t set, const StageUnit& unit) const {
    return std::all_of(unit.parts.begin(), unit.parts.end(), [&](const UnitPart& part) {
      return count(set, part.pool) + static_cast<std::size_t>(part.devices) < counts_[part.pool];
    });
  }
  bool is_within(std::size_t part, std::size_t set) const {
    for (std::size_t pool = 0; pool < strides_.size(); ++pool)
      if (count(part, pool) > count(set, pool)) return false;
    return true;
  }

 private:
  void add_pool(int devices) {
    strides_.push_back(size_);
    counts_.push_back(static_cast<std::size_t>(devices) + 1);
    const bool is_too_large = size_ > std::numeric_limits<std::size_t>::max() / counts_.back();
    size_ = is_too_large ? std::numeric_limits<std::size_t>::max() : size_ * counts_.back();
  }

  std::vector<std::size_t> strides_, counts_;  // by pool
  std::size_t size_ = 1;
};

}  // namespace motley::search
