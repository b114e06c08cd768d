#include "motley/search/spmd/mean_time.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace motley::search {
namespace {

constexpr double kSlack = 1e-9;  // of parts, which are sums of quotients

}  // namespace

PartRange part_range(const ShareRange& share, std::int64_t batch, std::int64_t extent) {
  const auto all = static_cast<double>(extent);
  PartRange range{std::max(0.0, std::floor(share.least * all - kSlack)) / all,
                  std::min(all, std::ceil(share.most * all + kSlack)) / all};
  if (extent != batch) return range;
  range.least = std::max(range.least, static_cast<double>(share.least_samples) / all);
  range.most = std::min(range.most, static_cast<double>(share.most_samples) / all);
  return range;
}

void MeanTime::add(int count, double weight, const PartTime& time, const PartRange& range,
                   double price) {
  const double least = std::min(std::max(time.least, time.fixed), time.whole);
  const double grows = time.whole - time.fixed;
  const double free =
      std::clamp(grows > 0 ? (least - time.fixed) / grows : 1.0, range.least, range.most);
  const double rate = weight * grows;
  whole_ += weight * time.whole;
  least_ += weight * std::max(least, time.fixed + range.least * grows) + price * range.least;
  left_ -= count * range.least;
  if (range.most > range.least + kSlack) ++open_;
  const auto many = static_cast<double>(count);
  for (const Piece& piece : {Piece{many, free - range.least, price, range.least},
                             Piece{many, range.most - free, rate + price, free}}) {
    if (piece.length <= 0) continue;
    if (piece.rate < 0) {  // a saving
      least_ += piece.rate * piece.length;
      left_ -= piece.count * piece.length;
    } else {
      pieces_.push_back(piece);
    }
  }
}

double MeanTime::split(std::int64_t extent) const {
  std::vector<Piece> pieces = pieces_;
  std::sort(pieces.begin(), pieces.end());  // a kind's first piece is its cheapest
  double sum = least_, left = left_;
  for (const Piece& piece : pieces) {
    if (left <= kSlack) return sum;
    double more = std::min(piece.length, left / piece.count);
    // No other kind can take more, so this one's part is rounded up to a whole number.
    if (open_ == 1 && extent > 0 && piece.rate > 0) {
      const auto all = static_cast<double>(extent);
      const double part = std::ceil((piece.from + more) * all - kSlack * all) / all;
      more = std::max(more, std::min(piece.length, part - piece.from));
    }
    sum += piece.rate * more;
    left -= piece.count * more;
  }
  return left <= kSlack ? sum : std::numeric_limits<double>::infinity();
}

}  // namespace motley::search
