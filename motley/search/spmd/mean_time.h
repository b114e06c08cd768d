#pragma once

#include <cstdint>
#include <vector>

namespace motley::search {

/// What a device takes for a part of an operator, at least: for the part p of it
/// max(least, fixed + p (whole - fixed)) seconds.
struct PartTime {
  double whole = 0;
  double fixed = 0;  ///< for operands and results of which each device has all
  double least = 0;  ///< for a part of nothing: a launch
};

/// Between which the part of the fullest device of a kind is.
struct PartRange {
  double least = 0, most = 1;
};

/// What is known of the share that the fullest device of a kind has, and of its samples.
struct ShareRange {
  double least = 0, most = 1;
  std::int64_t least_samples = 0, most_samples = 0;
};

/// The part of that device of any extent. Shares are rounded to whole numbers, each to the one
/// below or above (plan::round_shares); `batch` is the extent of the samples.
PartRange part_range(const ShareRange& share, std::int64_t batch, std::int64_t extent);

/// The weighted mean over devices of the seconds that one operator takes, as a bound whatever the
/// parts: of each kind the fullest device counts, which is the same for all that is cut. The parts
/// of all devices sum to 1, so those of the fullest times the devices of their kinds to 1 or more.
/// As much as devices do within their least time costs nothing more; the rest goes to where it
/// weighs least.
class MeanTime {
 public:
  /// So many devices of one kind, of this weight together. `price`: what a part of 1 of its fullest
  /// device costs beside, or saves.
  void add(int count, double weight, const PartTime& time, const PartRange& range = {},
           double price = 0);
  /// Where each device runs all of it, without prices.
  double whole() const { return whole_; }
  /// Where it is split; infinity: the ranges leave no way to. `extent`: whole numbers of it are
  /// parts, if there is one.
  double split(std::int64_t extent = 0) const;

 private:
  /// More of a kind, at one price.
  struct Piece {
    double count = 0, length = 0, rate = 0;
    double from = 0;  // the part where it begins
    bool operator<(const Piece& other) const { return rate * other.count < other.rate * count; }
  };
  double whole_ = 0, least_ = 0;
  double left_ = 1;  // of the parts of all
  int open_ = 0;     // kinds that can have more than their least
  std::vector<Piece> pieces_;
};

}  // namespace motley::search
