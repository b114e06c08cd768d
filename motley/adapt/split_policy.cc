#include "motley/adapt/split_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "motley/cost/step/closed_form.h"

namespace motley::adapt {
namespace {

/// The most group sizes tried: all, or this many evenly, and those next to the present one.
constexpr std::size_t kNumbers = 16;
/// Most samples of a device, as a multiple of its largest so far.
constexpr std::int64_t kReach = 3;
/// Gain at which a split is requested: in deviations of the present step's time, and relative.
constexpr double kSure = 1.0, kLeastGain = 0.003;
/// Standard deviations beyond which a device falls short of its prior.
constexpr double kShort = 3;
/// Weight of the assumed spread in readings, and the assumed spread.
constexpr double kOwnReadings = 4, kAssumedSpread = 0.03;

using policy::Choice;

std::string percent(double ratio) { return fmt::format("{:.1f} %", 100 * ratio); }

/// Fits curves to a number of exchanges: others may all start at the end; with none, adds updates.
cost::StepCurves with_exchanges(cost::StepCurves curves, std::size_t exchanges) {
  if (curves.ready.size() == exchanges) return curves;
  if (exchanges == 0)
    for (auto& [samples, seconds] : curves.end.points) seconds += cost::total_update(curves);
  curves.ready.assign(exchanges, curves.end);
  curves.update.assign(exchanges, 0.0);
  return curves;
}

std::size_t devices_of(const std::vector<std::int64_t>& samples) {
  return samples.size() -
         static_cast<std::size_t>(std::count(samples.begin(), samples.end(), std::int64_t{0}));
}

}  // namespace

struct SplitPolicy::Group {
  std::vector<std::size_t> places;  // indices of devices
  std::vector<LearnedCurves::Estimated> estimated;
  std::vector<DeviceLimits> limits;  // as far as curves are trusted
};

/// Prices a group's splits, with the exchanges of as many devices as have samples.
class SplitPolicy::Prices {
 public:
  /// The group must outlive it.
  Prices(const Group& group, const LearnedExchanges& exchanges) : exchanges_(exchanges) {
    take(group, 0, alone_, alone_curves_);
    take(group, exchanges.of(2).exchange.size(), several_, several_curves_);
  }
  Prices(const Prices&) = delete;
  Prices& operator=(const Prices&) = delete;

  double step(const std::vector<std::int64_t>& samples) const { return step(samples, samples); }
  /// Prices only the devices with samples in `part`.
  double step(const std::vector<std::int64_t>& samples,
              const std::vector<std::int64_t>& part) const {
    const std::size_t devices = devices_of(samples);
    return cost::group_step(members(devices), exchanges_.of(devices), part);
  }
  std::optional<cost::GroupSplit> best(std::int64_t batch,
                                       const cost::GroupSplitLimits& limits) const {
    return cost::find_group_split(members(limits.devices), exchanges_.of(limits.devices), batch,
                                  limits);
  }

 private:
  static void take(const Group& group, std::size_t exchanges,
                   std::vector<cost::GroupMember>& members, std::vector<cost::StepCurves>& curves) {
    for (const LearnedCurves::Estimated& each : group.estimated)
      curves.push_back(with_exchanges(each.curves, exchanges));
    for (std::size_t i = 0; i < curves.size(); ++i)
      members.push_back({&curves[i], group.limits[i].least, group.limits[i].most});
  }
  const std::vector<cost::GroupMember>& members(std::size_t devices) const {
    return devices < 2 ? alone_ : several_;
  }

  const LearnedExchanges& exchanges_;
  std::vector<cost::StepCurves> alone_curves_, several_curves_;
  std::vector<cost::GroupMember> alone_, several_;
};

SplitPolicy::SplitPolicy(std::vector<DeviceLimits> devices, Seconds change_cost,
                         std::vector<cost::GroupExchanges> exchanges)
    : exchanges_(std::move(exchanges)), change_cost_(change_cost) {
  for (DeviceLimits& limits : devices) add(std::move(limits));
}

void SplitPolicy::add(DeviceLimits limits) {
  curves_.emplace_back(limits.prior);
  devices_.push_back(std::move(limits));
  is_told_.push_back(0);
  is_gone_.push_back(0);
}

std::vector<Choice> SplitPolicy::observe(const policy::Observation& observation) {
  std::vector<Choice> choices;
  const auto set_gone = [&](const std::string& device, char is_gone) {
    for (std::size_t i = 0; i < devices_.size(); ++i)
      if (devices_[i].device == device) is_gone_[i] = is_gone;
  };
  if (const auto* loss = std::get_if<policy::LossSeen>(&observation)) set_gone(loss->device, 1);
  if (const auto* arrival = std::get_if<policy::ArrivalSeen>(&observation))
    set_gone(arrival->device, 0);
  if (const auto* memory = std::get_if<policy::MemorySeen>(&observation))
    for (DeviceLimits& limits : devices_)
      if (limits.device == memory->device) limits.most = std::max(memory->most, limits.least);
  const auto* seen = std::get_if<policy::StepSeen>(&observation);
  if (seen == nullptr || seen->devices.empty()) return choices;
  learn(*seen, choices);
  if (!asked_.waits(*seen)) choose(*seen, choices);
  return choices;
}

void SplitPolicy::learn(const policy::StepSeen& seen, std::vector<Choice>& choices) {
  for (const policy::DeviceStep& device : seen.devices) {
    auto place = std::find_if(devices_.begin(), devices_.end(), [&](const DeviceLimits& limits) {
      return limits.device == device.device;
    });
    if (place == devices_.end()) {
      add({.device = device.device});
      place = devices_.end() - 1;
    }
    const auto i = static_cast<std::size_t>(place - devices_.begin());
    is_gone_[i] = 0;
    const auto tell = [&](std::string text) {
      choices.push_back({policy::Tell{device.device, text}, std::nullopt, text});
    };
    if (const auto change = curves_[i].observe(device, seen.step))
      tell(fmt::format("takes {:.2f} times as long as before, since step {}", change->factor,
                       change->since_step));
    const auto over = curves_[i].over_prior();
    if (!over || is_told_[i]) continue;
    const double allowed = devices_[i].prior->trust + curves_[i].spread();
    if (std::log(*over) <= kShort * allowed) continue;
    is_told_[i] = 1;
    tell(fmt::format("takes {:.2f} times as long as predicted, which allowed for {}", *over,
                     percent(allowed)));
  }
  exchanges_.observe(seen);
  share_spread();
}

/// Assumes for each device the spread and first steps of all, until measured.
void SplitPolicy::share_spread() {
  double squares = kOwnReadings * kAssumedSpread * kAssumedSpread, degrees = kOwnReadings;
  FirstSteps firsts;
  for (const LearnedCurves& curves : curves_) {
    squares += curves.squares();
    degrees += curves.degrees();
    firsts.add(curves.first_steps());
  }
  for (LearnedCurves& curves : curves_) {
    curves.assume_spread(std::sqrt(squares / degrees));
    curves.assume_first(firsts);
  }
}

SplitPolicy::Group SplitPolicy::find_group(const policy::StepSeen& seen) const {
  Group group;
  const auto there =
      static_cast<std::int64_t>(std::count(is_gone_.begin(), is_gone_.end(), char{0}));
  const std::int64_t even = (seen.global_batch + there - 1) / there;
  std::vector<std::pair<double, std::size_t>> known;  // by their time at an even share
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (is_gone_[i]) continue;
    group.places.push_back(i);
    group.estimated.emplace_back();
    const LearnedCurves& curves = curves_[i];
    std::int64_t most = even;
    if (curves.is_seen())
      most = std::max(most, kReach * curves.largest_seen());
    else if (curves.is_known())
      most = seen.global_batch;
    most = std::min({most, devices_[i].most, seen.global_batch});
    group.limits.push_back(
        {.device = devices_[i].device, .least = devices_[i].least, .most = most});
    if (!curves.is_known()) continue;
    group.estimated.back() = curves.estimate(std::max(most, curves.largest_seen()));
    known.emplace_back(group.estimated.back().curves.end.at(static_cast<double>(even)),
                       group.estimated.size() - 1);
  }
  if (known.empty()) return {};  // no device has reported anything useful yet
  std::sort(known.begin(), known.end());
  for (LearnedCurves::Estimated& estimated : group.estimated)
    if (estimated.curves.end.points.empty())
      estimated = group.estimated[known[known.size() / 2].second];
  return group;
}

/// Finds the best split over each number of devices, with that number's exchanges. The present
/// number comes first: most others only need a check that they are no better.
std::optional<cost::GroupSplit> SplitPolicy::find_best(const Group& group, const Prices& prices,
                                                       std::int64_t batch, std::size_t present) {
  const std::size_t all = group.places.size();
  const auto must = static_cast<std::size_t>(
      std::count_if(group.limits.begin(), group.limits.end(),
                    [](const DeviceLimits& limits) { return limits.least > 0; }));
  const std::size_t every = (all + kNumbers - 1) / kNumbers;
  std::vector<std::size_t> numbers = {present};
  for (std::size_t number = all; number >= std::max<std::size_t>(must, 1); --number) {
    const bool is_near = number + 1 >= present && number <= present + 1;
    if (number != present && (number % every == 0 || number == all || number == 1 || is_near))
      numbers.push_back(number);
  }
  std::optional<cost::GroupSplit> best;
  for (const std::size_t number : numbers) {
    if (number < must) continue;
    const double limit = best ? best->seconds : std::numeric_limits<double>::infinity();
    auto found = prices.best(batch, {number, limit});
    if (!found) continue;
    // Fewer devices may be faster: they exchange as a smaller group.
    if (devices_of(found->samples) < number) found->seconds = prices.step(found->samples);
    const bool has_all_that_must = std::equal(
        found->samples.begin(), found->samples.end(), group.limits.begin(),
        [](std::int64_t samples, const DeviceLimits& limits) { return samples >= limits.least; });
    if (has_all_that_must && found->seconds < limit) best = std::move(found);
  }
  return best;
}

void SplitPolicy::choose(const policy::StepSeen& seen, std::vector<Choice>& choices) {
  const Group group = find_group(seen);
  if (group.places.empty()) return;
  std::vector<DeviceLimits> limits;
  for (const std::size_t place : group.places) limits.push_back(devices_[place]);
  const std::vector<std::int64_t> now = samples_in(seen, limits);
  const Prices prices(group, exchanges_);
  const auto best = find_best(group, prices, seen.global_batch, devices_of(now));
  if (!best) return;
  if (now == best->samples) {
    lost_ = 0;
    return;
  }
  const double present = prices.step(now);
  // Uncertainty of the device that the present step waits for.
  double latest = 0, unknown = 0;
  bool is_allowed = true;
  for (std::size_t i = 0; i < now.size(); ++i) {
    std::vector<std::int64_t> alone(now.size(), 0);
    alone[i] = now[i];
    const double seconds = prices.step(now, alone);
    is_allowed = is_allowed && now[i] >= limits[i].least && now[i] <= limits[i].most;
    if (now[i] == 0 || seconds <= latest) continue;
    latest = seconds;
    unknown = group.estimated[i].deviation.at(static_cast<double>(now[i]));
  }
  const double gain = present - best->seconds;
  if (is_allowed && gain <= std::max(kSure * unknown, kLeastGain * present)) return;
  lost_ += gain;
  if (is_allowed && lost_ < change_cost_.value) return;
  lost_ = 0;
  std::vector<policy::Share> shares = make_shares(limits, best->samples);
  asked_.ask(shares, seen.step);
  choices.push_back({policy::UseSplit{std::move(shares)}, Seconds(best->seconds),
                     fmt::format("by what was learned of the devices a step is {} shorter, of "
                                 "which {} may be chance",
                                 percent(gain / present), percent(unknown / present))});
}

}  // namespace motley::adapt
