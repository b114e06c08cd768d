#include "motley/search/model_stages/finer_cuts.h"

#include <algorithm>
#include <cstdint>

#include "motley/search/stages/costs/stage_sums.h"

namespace motley::search {
namespace {

constexpr double kLargeLayer = 0.5;         // of a device's share, from which on a layer is cut
constexpr std::size_t kMostShared = 8;      // devices by which the share is measured
constexpr std::size_t kMostStretches = 40;  // stretches that are searched
constexpr std::size_t kMostSpace = 1000;    // stretches times units

class FinerCuts {
 public:
  FinerCuts(const StageSums& sums, const FinerLayers& pieces, std::size_t unit)
      : sums_(sums),
        first_(pieces.first),
        unit_(unit),
        work_(sums.work(unit, sums.costs().micro_batches().front())) {}

  double all() const { return work_.pass(0, first_.back()); }

  /// What the largest layer takes less what of it cannot be cut.
  double largest() const {
    double largest = 0;
    for (std::size_t l = 0; l + 1 < first_.size(); ++l) {
      double piece = 0;
      for (std::size_t p = first_[l]; p < first_[l + 1]; ++p)
        piece = std::max(piece, work_.pass(p, p + 1));
      largest = std::max(largest, work_.pass(first_[l], first_[l + 1]) - piece);
    }
    return largest;
  }

  /// Small layers whole, large ones in stretches of about `each`.
  std::vector<std::size_t> cut(double each) const {
    std::vector<std::size_t> cuts = {0};
    for (std::size_t l = 0; l + 1 < first_.size(); ++l) {
      const std::size_t end = first_[l + 1];
      while (work_.pass(cuts.back(), end) > 1.5 * each) {
        const std::size_t next = find_next(cuts.back(), end, each);
        if (next == end) break;
        cuts.push_back(next);
      }
      cuts.push_back(end);
    }
    return cuts;
  }

 private:
  /// Behind `begin`, where least passes of what is half to one and a half of `each` away, or the
  /// first that is further.
  std::size_t find_next(std::size_t begin, std::size_t end, double each) const {
    std::size_t best = end;
    for (std::size_t p = begin + 1; p < end; ++p) {
      const double time = work_.pass(begin, p);
      if (time < each / 2 || (time > 1.5 * each && best < end)) continue;
      if (best == end || sums_.output(unit_, p) < sums_.output(unit_, best)) best = p;
    }
    return best;
  }

  const StageSums& sums_;
  const std::vector<std::size_t>& first_;  // piece of each layer, and one more
  std::size_t unit_;
  const WorkSums& work_;
};

}  // namespace

std::vector<std::size_t> find_finer_cuts(const StageCosts& costs, const FinerLayers& pieces,
                                         std::size_t devices) {
  std::size_t unit = 0;
  while (unit < costs.units().size() && !costs.knows(unit, costs.micro_batches().front())) ++unit;
  if (unit == costs.units().size()) return {};
  const StageSums sums(costs);
  const FinerCuts finer(sums, pieces, unit);
  if (finer.largest() * static_cast<double>(std::min(devices, kMostShared)) <
      kLargeLayer * finer.all())
    return {};
  const std::size_t most = std::min(kMostStretches, kMostSpace / costs.units().size());
  for (double each = finer.all() / static_cast<double>(most);; each *= 1.5) {
    std::vector<std::size_t> cuts = finer.cut(each);
    if (cuts.size() == pieces.first.size()) return {};
    if (cuts.size() <= most + 1) return cuts;
  }
}

}  // namespace motley::search
