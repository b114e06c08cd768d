#include "motley/search/spmd/work_by_share.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace motley::search {
namespace {

constexpr int kHalvings = 12;         // bisection steps in a range of shares
constexpr int kEvenHalvings = 40;     // bisection steps in a range of seconds
constexpr double kLeastWidth = 0.05;  // of a range of shares that is cut

}  // namespace

WorkByShare::WorkByShare(const SpmdSpace& space, SpmdPrices& prices)
    : batch_(space.global_batch), classes_(prices.classes()) {
  std::map<int, std::pair<double, std::size_t>> kinds;  // number, first operator
  for (std::size_t i = 0; i < space.ways.size(); ++i)
    if (space.is_needed[i])
      kinds.try_emplace(space.kind_of[i], 0.0, i).first->second.first += space.op_count[i];
  for (const auto& [kind, group] : kinds) {
    const auto& [count, i] = group;
    const OpId op(static_cast<std::int64_t>(i));
    Operators& operators = operators_.emplace_back(Operators{count, {}});
    for (const graph::Strategy& way : space.ways[i])
      operators.ways.push_back(
          {prices.part_times(op, way), way.factor < 0 ? 0 : extent_of(space, op, way)});
  }
}

/// Returns the least compute of the fullest device of a class that has this share.
double WorkByShare::least(std::size_t device_class, double share) const {
  double sum = 0;
  for (const auto& [count, ways] : operators_) {
    double least = std::numeric_limits<double>::infinity();
    for (const Work& way : ways) {
      const PartTime& time = way.times[device_class];
      const double part =
          way.extent == 0 ? 1 : part_range({share, 1, 0, batch_}, batch_, way.extent).least;
      least = std::min(
          least, std::min(time.whole,
                          std::max(time.least, time.fixed + part * (time.whole - time.fixed))));
    }
    sum += count * least;
  }
  return sum;
}

void WorkByShare::narrow(const std::vector<int>& counts, double known, ShareRanges& shares) const {
  const auto all = static_cast<double>(batch_);
  for (std::size_t c = 0; c < classes_.size(); ++c) {
    ShareRange& range = shares[static_cast<std::size_t>(classes_[c].kind)];
    double low = 0, high = 1;
    if (least(c, high) < known) continue;
    for (int halved = 0; halved < kHalvings; ++halved) {
      const double middle = (low + high) / 2;
      (least(c, middle) < known ? low : high) = middle;
    }
    range.most = std::min(range.most, high);
  }
  double sum = 0;
  for (std::size_t k = 0; k < counts.size(); ++k) sum += counts[k] * shares[k].most;
  for (std::size_t k = 0; k < counts.size(); ++k) {
    if (counts[k] == 0) continue;
    ShareRange& range = shares[k];
    range.least = std::max(range.least, range.most - (sum - 1) / counts[k]);
    range.least_samples = std::max(range.least_samples,
                                   static_cast<std::int64_t>(std::floor(range.least * all - 1e-9)));
    range.most_samples =
        std::min(range.most_samples, static_cast<std::int64_t>(std::ceil(range.most * all + 1e-9)));
  }
}

std::optional<std::pair<ShareRanges, ShareRanges>> WorkByShare::cut(
    const std::vector<int>& counts, const ShareRanges& shares) const {
  const std::vector<double> even = even_samples(counts, shares);
  const auto all = static_cast<double>(batch_);
  ShareRanges low = shares, high = shares;
  std::size_t best = counts.size();
  for (std::size_t k = 0; k < counts.size(); ++k)
    if (counts[k] > 0 && shares[k].least_samples < shares[k].most_samples &&
        (best == counts.size() || even[k] < even[best]))
      best = k;
  if (best < counts.size()) {
    ShareRange &below = low[best], &above = high[best];
    below.most_samples = std::clamp(static_cast<std::int64_t>(std::floor(even[best])),
                                    below.least_samples, below.most_samples - 1);
    above.least_samples = below.most_samples + 1;
    // Rounding moves a share by less than one sample.
    below.most = std::min(below.most, static_cast<double>(below.most_samples + 1) / all);
    above.least = std::max(above.least, static_cast<double>(above.least_samples - 1) / all);
    return std::pair(std::move(low), std::move(high));
  }
  double widest = kLeastWidth;
  for (std::size_t k = 0; k < counts.size(); ++k) {
    const ShareRange& range = shares[k];
    if (counts[k] == 0 || range.most - range.least < widest * range.most) continue;
    widest = (range.most - range.least) / range.most;
    best = k;
  }
  if (best == counts.size()) return std::nullopt;
  const ShareRange& range = shares[best];
  const double quarter = (range.most - range.least) / 4;
  low[best].most = high[best].least =
      std::clamp(even[best] / all, range.least + quarter, range.most - quarter);
  return std::pair(std::move(low), std::move(high));
}

/// Returns by kind the samples per device at which all would be busy equally long, if each operator
/// is split that can be, samples first.
std::vector<double> WorkByShare::even_samples(const std::vector<int>& counts,
                                              const ShareRanges& shares) const {
  std::vector<double> fixed(counts.size(), 0), grows(counts.size(), 0);
  for (const auto& [count, ways] : operators_) {
    const Work& work = ways[ways.size() > 1 ? 1 : 0];
    for (std::size_t c = 0; c < work.times.size(); ++c) {
      const auto k = static_cast<std::size_t>(classes_[c].kind);
      const PartTime& time = work.times[c];
      fixed[k] += count * (work.extent > 0 ? time.fixed : time.whole);
      if (work.extent > 0) grows[k] += count * (time.whole - time.fixed);
    }
  }
  const auto all = static_cast<double>(batch_);
  const auto at = [&](double seconds) {
    std::vector<double> samples(counts.size(), 0);
    for (std::size_t k = 0; k < counts.size(); ++k)
      if (counts[k] > 0 && grows[k] > 0)
        samples[k] = std::clamp(all * (seconds - fixed[k]) / grows[k],
                                static_cast<double>(shares[k].least_samples),
                                static_cast<double>(shares[k].most_samples));
    return samples;
  };
  double low = 0, high = 0;
  for (std::size_t k = 0; k < counts.size(); ++k) high = std::max(high, fixed[k] + grows[k]);
  for (int halved = 0; halved < kEvenHalvings; ++halved) {
    const double middle = (low + high) / 2;
    const std::vector<double> samples = at(middle);
    double sum = 0;
    for (std::size_t k = 0; k < samples.size(); ++k) sum += counts[k] * samples[k];
    (sum < all ? low : high) = middle;
  }
  return at(high);
}

}  // namespace motley::search
