#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace motley::graph {

/// What happens to an operator when one of its factors is split over devices.
enum class Split : std::uint8_t {
  kNever,  ///< it needs the whole range: softmax, sorting, the window of a convolution
  kPlain,  ///< each device runs the same operator on its part
  /// The same, but it divides by the number of elements: results are weighted by part / whole.
  kMean,
  kRewritten,  ///< possible with other instructions: statistics of all parts, offsets
};

/// An index range that an operator runs over.
struct Factor {
  std::int64_t size = 1;
  Split split = Split::kPlain;
  bool operator==(const Factor&) const = default;
};

/// The factors whose product a dimension is, outermost first; none: size 1. A few are stored
/// inline: planners make rules for every operator at every batch that they try.
class DimFactors {
 public:
  using value_type = int;
  using iterator = int*;
  using const_iterator = const int*;
  DimFactors() = default;
  DimFactors(std::initializer_list<int> ids) {
    for (const int id : ids) push_back(id);
  }
  void push_back(int id) {
    if (many_.empty() && size_ < kFew) {
      few_[size_++] = id;
      return;
    }
    if (many_.empty()) many_.assign(few_.begin(), few_.end());
    many_.push_back(id);
    ++size_;
  }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int* begin() { return many_.empty() ? few_.data() : many_.data(); }
  int* end() { return begin() + size_; }
  const int* begin() const { return many_.empty() ? few_.data() : many_.data(); }
  const int* end() const { return begin() + size_; }
  int operator[](std::size_t i) const { return begin()[i]; }
  int back() const { return begin()[size_ - 1]; }
  bool operator==(const DimFactors& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }

 private:
  static constexpr std::size_t kFew = 4;
  std::size_t size_ = 0;
  std::array<int, kFew> few_ = {};
  std::vector<int> many_;  // all of them, if they are more than kFew
};
using TensorFactors = std::vector<DimFactors>;

}  // namespace motley::graph
