#include "motley/cost/step/filling.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <queue>

#include "motley/base/check.h"

namespace motley::cost {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();
/// Slack for the rounding of an inverse, far below a nanosecond of a step.
constexpr double kRounding = 1e-12;

std::int64_t size_of(const Filling::Crew& crew) {
  return static_cast<std::int64_t>(crew.members.size());
}

/// A device and its samples while the surplus is taken back.
struct Hand {
  double seconds = 0;
  DeviceId device;
  std::size_t crew = 0;
  std::int64_t samples = 0;
  bool operator<(const Hand& other) const {  // the latest first, among equals the highest id
    return seconds != other.seconds ? seconds < other.seconds : device < other.device;
  }
};

/// Returns where to search next: where a line through lack and surplus crosses, or the middle.
double next_share(std::int64_t lack, std::int64_t surplus) {
  if (lack == 0) return 0.5;
  return std::clamp(static_cast<double>(lack) / static_cast<double>(lack + surplus), 0.02, 0.98);
}

void sort_largest_first(std::vector<Filling::Load>& loads) {
  std::sort(loads.begin(), loads.end(), [](const Filling::Load& a, const Filling::Load& b) {
    return a.samples != b.samples ? a.samples > b.samples : a.crew < b.crew;
  });
}

}  // namespace

std::int64_t Filling::devices_needed(double seconds) const {
  std::vector<Load> loads;
  for (std::size_t i = 0; i < crews_.size(); ++i) {
    const double most =
        crews_[i].ramp->largest_samples(seconds + kRounding * std::abs(seconds)) + 1e-9;
    loads.push_back({i, clip(most, i)});
  }
  sort_largest_first(loads);
  std::int64_t left = goal_.batch, devices = 0;
  for (const Load& load : loads) {
    if (load.samples == 0) break;
    const std::int64_t needed = (left + load.samples - 1) / load.samples;
    if (needed <= size_of(crews_[load.crew])) return devices + needed;
    left -= load.samples * size_of(crews_[load.crew]);
    devices += size_of(crews_[load.crew]);
  }
  return std::numeric_limits<std::int64_t>::max();
}

std::optional<Filling::Solution> Filling::solve(double limit, double floor) const {
  Solution best = fill(std::nextafter(limit, 0.0));
  if (best.surplus < 0) return std::nullopt;
  double low = std::max(floor, least_value());
  std::int64_t lack = 0;  // of the samples done just below `low`; 0: unknown
  for (bool is_line = true; low < best.seconds;) {
    const double width = best.seconds - low;
    double middle = low + width * next_share(is_line ? lack : 0, best.surplus);
    if (middle >= best.seconds) middle = low;
    Solution found = fill(middle);
    if (found.surplus >= 0) {
      best = std::move(found);
    } else {
      lack = -found.surplus;
      low = next_value(middle);
    }
    is_line = best.seconds - low <= width / 2;
  }
  return best;
}

double Filling::least_of_all() const {
  double least = 0.0;
  for (std::size_t i = 0; i < crews_.size(); ++i)
    if (!crews_[i].may_idle) least = std::max(least, value(i, crews_[i].least));
  return least;
}

std::vector<std::pair<DeviceId, std::int64_t>> Filling::hand_out(const Solution& solution) const {
  std::vector<Hand> all, done;
  std::int64_t devices = goal_.devices;
  for (const Load& load : solution.loads) {
    const double seconds = value(load.crew, load.samples);
    for (const DeviceId device : crews_[load.crew].members) {
      if (devices-- <= 0) break;
      all.push_back({seconds, device, load.crew, load.samples});
    }
  }
  std::priority_queue<Hand> hands(std::less<Hand>(), std::move(all));
  for (std::int64_t surplus = solution.surplus; surplus > 0;) {
    MOTLEY_CHECK(!hands.empty());
    Hand hand = hands.top();
    hands.pop();
    const Crew& crew = crews_[hand.crew];
    if (hand.samples == (crew.may_idle ? 0 : crew.least)) {
      done.push_back(hand);
      continue;
    }
    --surplus;
    --hand.samples;
    hand.seconds = hand.samples == 0 ? 0 : value(hand.crew, hand.samples);
    hands.push(hand);
  }
  for (; !hands.empty(); hands.pop()) done.push_back(hands.top());
  std::sort(done.begin(), done.end(),
            [](const Hand& a, const Hand& b) { return a.device < b.device; });
  std::vector<std::pair<DeviceId, std::int64_t>> shares;
  for (const Hand& hand : done)
    if (hand.samples > 0) shares.emplace_back(hand.device, hand.samples);
  return shares;
}

/// Returns the whole samples that the crew's devices may have; 0 if fewer than the least.
std::int64_t Filling::clip(double samples, std::size_t crew) const {
  const auto& [ramp, least, most, members, may_idle] = crews_[crew];
  if (!(samples >= static_cast<double>(least)) || most < least) return 0;
  return samples >= static_cast<double>(most) ? most : static_cast<std::int64_t>(samples);
}

/// Returns the largest whole b with f(b) <= seconds in the arithmetic of f itself.
std::int64_t Filling::samples_within(std::size_t crew, double seconds) const {
  const std::int64_t least = crews_[crew].least, most = crews_[crew].most;
  std::int64_t samples =
      std::max(clip(crews_[crew].ramp->largest_samples(seconds), crew), least - 1);
  while (samples < most && value(crew, samples + 1) <= seconds) ++samples;
  while (samples >= least && value(crew, samples) > seconds) --samples;
  return samples < least ? 0 : samples;
}

double Filling::least_value() const {
  double least = kNoLimit;
  for (std::size_t i = 0; i < crews_.size(); ++i)
    if (crews_[i].most >= crews_[i].least) least = std::min(least, value(i, crews_[i].least));
  return least;
}

/// Returns the least f above `seconds` at which some device could take more.
double Filling::next_value(double seconds) const {
  double next = kNoLimit;
  for (std::size_t i = 0; i < crews_.size(); ++i) {
    const std::int64_t samples = std::max(samples_within(i, seconds), crews_[i].least - 1);
    if (samples < crews_[i].most) next = std::min(next, value(i, samples + 1));
  }
  return next;
}

/// Returns the largest loads within `seconds`.
Filling::Solution Filling::fill(double seconds) const {
  Solution solution;
  solution.surplus = -goal_.batch;
  solution.loads.reserve(crews_.size());
  for (std::size_t i = 0; i < crews_.size(); ++i)
    solution.loads.push_back({i, samples_within(i, seconds)});
  sort_largest_first(solution.loads);
  std::int64_t devices = goal_.devices;
  std::size_t used = 0;
  while (used < solution.loads.size() && devices > 0 && solution.loads[used].samples > 0) {
    const Load& load = solution.loads[used++];
    const std::int64_t taken = std::min(devices, size_of(crews_[load.crew]));
    solution.surplus += load.samples * taken;
    devices -= taken;
    solution.seconds = std::max(solution.seconds, value(load.crew, load.samples));
  }
  solution.loads.resize(used);
  return solution;
}

}  // namespace motley::cost
