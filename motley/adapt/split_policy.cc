#include "motley/adapt/split_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "motley/base/statistics.h"

namespace motley::adapt {
namespace {

/// Steps over which exchanges are taken in the middle.
constexpr std::size_t kExchangeWindow = 16;
/// How many times the most samples that it had a device is given.
constexpr std::int64_t kReach = 3;
/// A split is asked for where it gains so many standard deviations of what the present one takes,
/// and so much of it.
constexpr double kSure = 1.0, kLeastGain = 0.003;
/// A device falls short of its prior beyond so many standard deviations.
constexpr double kShort = 3;
/// Readings of all devices' spread that are enough to go without an assumed one.
constexpr double kOwnReadings = 4, kAssumedSpread = 0.03;

using policy::Choice;

std::string percent(double ratio) { return fmt::format("{:.1f} %", 100 * ratio); }

/// Curves with as many exchanges as their group has: where they have others, all may start at the
/// end.
cost::StepCurves with_exchanges(cost::StepCurves curves, std::size_t exchanges) {
  if (curves.ready.size() == exchanges) return curves;
  curves.ready.assign(exchanges, curves.end);
  curves.update.assign(exchanges, 0.0);
  return curves;
}

}  // namespace

/// Who may take part in the next step.
struct SplitPolicy::Group {
  std::vector<std::size_t> places;  // among the devices
  std::vector<LearnedCurves::Estimated> estimated;
  std::vector<cost::GroupMember> members;
};

SplitPolicy::SplitPolicy(std::vector<DeviceLimits> devices, Seconds change_cost)
    : change_cost_(change_cost) {
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
  learn_exchanges(seen);
  share_spread();
}

void SplitPolicy::learn_exchanges(const policy::StepSeen& seen) {
  const auto members = static_cast<std::int64_t>(seen.devices.size());
  if (members != members_ ||
      (!exchanges_.empty() && exchanges_.back().size() != seen.exchange.size() + 1))
    exchanges_.clear();
  members_ = members;
  std::vector<double> row = seen.exchange;
  row.push_back(seen.blocking);
  exchanges_.push_back(std::move(row));
  if (exchanges_.size() > kExchangeWindow) exchanges_.erase(exchanges_.begin());
}

cost::GroupExchanges SplitPolicy::exchanges() const {
  cost::GroupExchanges middle;
  for (std::size_t k = 0; k < exchanges_.back().size(); ++k) {
    std::vector<double> column;
    for (const std::vector<double>& row : exchanges_) column.push_back(row[k]);
    middle.exchange.push_back(median(std::move(column)));
  }
  middle.blocking = middle.exchange.back();
  middle.exchange.pop_back();
  return middle;
}

/// Each device's spread is assumed to be as that of all until it is measured, and first steps are
/// as those of all.
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
    group.members.push_back({nullptr, devices_[i].least, most});
    if (!curves.is_known()) continue;
    group.estimated.back() = curves.estimate(std::max(most, curves.largest_seen()));
    known.emplace_back(group.estimated.back().curves.end.at(static_cast<double>(even)),
                       group.estimated.size() - 1);
  }
  if (known.empty()) return {};  // no device has said anything of use yet
  std::sort(known.begin(), known.end());
  for (std::size_t i = 0; i < group.places.size(); ++i) {
    LearnedCurves::Estimated& estimated = group.estimated[i];
    if (estimated.curves.end.points.empty())
      estimated = group.estimated[known[known.size() / 2].second];
    estimated.curves = with_exchanges(std::move(estimated.curves), seen.exchange.size());
    group.members[i].curves = &estimated.curves;
  }
  return group;
}

void SplitPolicy::choose(const policy::StepSeen& seen, std::vector<Choice>& choices) {
  const Group group = find_group(seen);
  if (group.members.empty()) return;
  const cost::GroupExchanges times = exchanges();
  const auto best = cost::find_group_split(group.members, times, seen.global_batch);
  if (!best) return;
  std::vector<DeviceLimits> limits;
  for (const std::size_t place : group.places) limits.push_back(devices_[place]);
  const std::vector<std::int64_t> now = samples_in(seen, limits);
  if (now == best->samples) {
    lost_ = 0;
    return;
  }
  const double present = cost::group_step(group.members, times, now);
  // What is not known of the device that the present step waits for.
  double latest = 0, unknown = 0;
  bool is_allowed = true;
  for (std::size_t i = 0; i < now.size(); ++i) {
    std::vector<std::int64_t> alone(now.size(), 0);
    alone[i] = now[i];
    const double seconds = cost::group_step(group.members, times, alone);
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
