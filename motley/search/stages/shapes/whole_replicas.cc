#include "motley/search/stages/shapes/whole_replicas.h"

#include <algorithm>
#include <cmath>

#include "motley/search/stages/costs/device_numbers.h"
#include "motley/search/stages/shapes/packing_lp.h"

namespace motley::search {
namespace {

constexpr std::size_t kLargestTable = 1 << 24;  // sets of devices times undominated offers
constexpr std::int64_t kMostNodes = 20'000;

/// Does another offer do as many samples on no more devices? The first of equal ones stays.
bool is_dominated(const std::vector<ShapeOffer>& offers, std::size_t which) {
  const ShapeOffer& offer = offers[which];
  for (std::size_t o = 0; o < offers.size(); ++o) {
    const ShapeOffer& other = offers[o];
    if (o == which || other.samples < offer.samples) continue;
    bool uses_no_more = true;
    for (std::size_t p = 0; p < offer.devices.size(); ++p)
      uses_no_more = uses_no_more && other.devices[p] <= offer.devices[p];
    if (!uses_no_more) continue;
    if (o < which || other.samples > offer.samples || other.devices != offer.devices) return true;
  }
  return false;
}

bool uses_within(const ShapeOffer& offer, const std::vector<int>& left) {
  for (std::size_t p = 0; p < left.size(); ++p)
    if (offer.devices[p] > left[p]) return false;
  return true;
}

/// Returns undominated offers that fit the devices.
std::vector<std::size_t> find_useful(const std::vector<ShapeOffer>& offers,
                                     const std::vector<int>& devices) {
  std::vector<std::size_t> useful;
  for (std::size_t o = 0; o < offers.size(); ++o)
    if (offers[o].samples > 0 && uses_within(offers[o], devices) && !is_dominated(offers, o))
      useful.push_back(o);
  return useful;
}

std::vector<int> choose_by_table(const std::vector<ShapeOffer>& offers,
                                 const std::vector<std::size_t>& useful,
                                 const DeviceNumbers& numbers) {
  const std::size_t length = numbers.count(numbers.size() - 1, 0) + 1;
  std::vector<std::int64_t> best(numbers.size(), 0);
  std::vector<std::int32_t> chosen(numbers.size(), -1);
  for (const std::size_t o : useful) {
    // Sets that differ only in the first pool are adjacent.
    const std::size_t uses = numbers.of(offers[o].devices);
    const auto first = static_cast<std::size_t>(offers[o].devices[0]);
    for (std::size_t row = 0; row < numbers.size(); row += length) {
      if (!numbers.is_within(uses - first, row)) continue;
      for (std::size_t set = row + first; uses > 0 && set < row + length; ++set) {
        if (best[set - uses] + offers[o].samples <= best[set]) continue;
        best[set] = best[set - uses] + offers[o].samples;
        chosen[set] = static_cast<std::int32_t>(o);
      }
    }
  }
  std::vector<int> counts(offers.size());
  for (std::size_t set = numbers.size() - 1; chosen[set] >= 0;) {
    const auto o = static_cast<std::size_t>(chosen[set]);
    ++counts[o];
    set -= numbers.of(offers[o].devices);
  }
  return counts;
}

/// Fills the remaining devices by depth-first search.
class DepthSearch {
 public:
  DepthSearch(const std::vector<ShapeOffer>& offers, const std::vector<double>& prices,
              std::vector<int> left)
      : offers_(offers), prices_(prices), left_(std::move(left)), now_(offers.size()) {
    for (std::size_t o = 0; o < offers.size(); ++o)
      if (offers[o].samples > 0) order_.push_back(o);
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::size_t a, std::size_t b) { return worth(a) > worth(b); });
    best_ = now_;
  }
  std::vector<int> run() {
    descend(0, 0);
    return best_;
  }

 private:
  double worth(std::size_t o) const {
    double price = 1e-12;
    for (std::size_t p = 0; p < prices_.size(); ++p) price += prices_[p] * offers_[o].devices[p];
    return static_cast<double>(offers_[o].samples) / price;
  }
  void descend(std::size_t from, std::int64_t samples) {
    if (samples > most_) {
      most_ = samples;
      best_ = now_;
    }
    double possible = static_cast<double>(samples);
    for (std::size_t p = 0; p < left_.size(); ++p) possible += prices_[p] * left_[p];
    if (++nodes_ > kMostNodes || possible <= static_cast<double>(most_)) return;
    for (std::size_t i = from; i < order_.size(); ++i) {
      const ShapeOffer& offer = offers_[order_[i]];
      if (!uses_within(offer, left_)) continue;
      for (std::size_t p = 0; p < left_.size(); ++p) left_[p] -= offer.devices[p];
      ++now_[order_[i]];
      descend(i, samples + offer.samples);
      --now_[order_[i]];
      for (std::size_t p = 0; p < left_.size(); ++p) left_[p] += offer.devices[p];
      if (nodes_ > kMostNodes) return;
    }
  }

  const std::vector<ShapeOffer>& offers_;
  const std::vector<double>& prices_;
  std::vector<int> left_, now_, best_;
  std::vector<std::size_t> order_;
  std::int64_t most_ = 0, nodes_ = 0;
};

}  // namespace

std::vector<int> choose_replicas(const std::vector<ShapeOffer>& offers,
                                 const std::vector<int>& devices) {
  const DeviceNumbers numbers(devices);
  const std::vector<std::size_t> useful = find_useful(offers, devices);
  if (numbers.size() <= kLargestTable / std::max<std::size_t>(useful.size(), 1))
    return choose_by_table(offers, useful, numbers);
  PackingLp lp(std::vector<double>(devices.begin(), devices.end()));
  for (const ShapeOffer& offer : offers)
    lp.add(static_cast<double>(offer.samples),
           std::vector<double>(offer.devices.begin(), offer.devices.end()));
  lp.solve();
  std::vector<int> counts, left = devices;
  for (const double amount : lp.amounts()) {
    // One less than fits: with its devices other sums may come out even.
    counts.push_back(std::max(0, static_cast<int>(std::floor(amount + 1e-6)) - 1));
    for (std::size_t p = 0; p < left.size(); ++p)
      left[p] -= counts.back() * offers[counts.size() - 1].devices[p];
  }
  for (std::size_t o = 0; o < offers.size(); ++o)  // excess from rounding
    while (counts[o] > 0 && *std::min_element(left.begin(), left.end()) < 0) {
      --counts[o];
      for (std::size_t p = 0; p < left.size(); ++p) left[p] += offers[o].devices[p];
    }
  const std::vector<int> more = DepthSearch(offers, lp.prices(), left).run();
  for (std::size_t o = 0; o < offers.size(); ++o) counts[o] += more[o];
  return counts;
}

}  // namespace motley::search
