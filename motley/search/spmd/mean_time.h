#pragma once

#include <cstdint>
#include <vector>

namespace motley::search {

/// A lower bound of a device's time for a part of an operator: max(least, fixed + p (whole -
/// fixed)) seconds for the part p.
struct PartTime {
  double whole = 0;
  double fixed = 0;  ///< for operands and results that each device has whole
  double least = 0;  ///< for an empty part: a launch
};

/// The range of the part of a kind's fullest device.
struct PartRange {
  double least = 0, most = 1;
};

/// The known range of the share and samples of a kind's fullest device.
struct ShareRange {
  double least = 0, most = 1;
  std::int64_t least_samples = 0, most_samples = 0;
};

/// Returns the range of that device's part of an extent. Shares are rounded to the whole number
/// below or above (plan::round_shares); `batch` is the extent of the samples.
PartRange part_range(const ShareRange& share, std::int64_t batch, std::int64_t extent);

/// A lower bound of the weighted mean over devices of an operator's seconds, for any parts. The
/// fullest device of each kind counts; it is the same for everything that is cut. Parts of all
/// devices sum to 1, so the fullest ones' parts times the numbers of devices sum to at least 1.
/// Work within a device's least time is free; the rest goes to where it weighs least.
class MeanTime {
 public:
  /// Adds `count` devices of one kind with a total weight. `price`: additional cost, or saving, of
  /// a part of 1 on its fullest device.
  void add(int count, double weight, const PartTime& time, const PartRange& range = {},
           double price = 0);
  /// Returns the mean if each device runs all of it, without prices.
  double whole() const { return whole_; }
  /// Returns the mean of a split; infinity if impossible. `extent`: unit of parts, 0 if none.
  double split(std::int64_t extent = 0) const;

 private:
  /// Additional work of a kind at one price.
  struct Piece {
    double count = 0, length = 0, rate = 0;
    double from = 0;  // the part at its begin
    bool operator<(const Piece& other) const { return rate * other.count < other.rate * count; }
  };
  double whole_ = 0, least_ = 0;
  double left_ = 1;  // of all parts
  int open_ = 0;     // kinds that can take more than their least
  std::vector<Piece> pieces_;
};

}  // namespace motley::search
