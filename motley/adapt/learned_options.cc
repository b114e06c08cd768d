#include "motley/adapt/learned_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "motley/base/check.h"
#include "motley/base/json.h"
#include "motley/base/statistics.h"
#include "motley/policy/json_fields.h"

namespace motley::adapt {
namespace {

constexpr double kDiffers = 0.01;          // of a time, that makes a difference
constexpr std::size_t kStepsKept = 16;     // steps
constexpr std::int64_t kTrustedTimes = 3;  // times the most samples that a device had
constexpr double kUntried = 1e-6;          // seconds a sample, of a device that nothing is known of

void keep_last(std::vector<double>& last, double value) {
  last.push_back(value);
  if (last.size() > kStepsKept) last.erase(last.begin());
}

/// Where work goes on, exchanges but the last of those that are waited for.
double hidden_of(const std::vector<double>& exchange) {
  return exchange.size() < 2 ? 0 : std::accumulate(exchange.begin(), exchange.end() - 1, 0.0);
}

/// The part of a curve up to so many samples.
DeviceCurve curve_until(DeviceCurve curve, double most) {
  if (curve.points.back().samples <= most) return curve;
  const double last = work_seconds(curve, most);
  std::erase_if(curve.points, [&](const CurvePoint& point) { return point.samples >= most; });
  curve.points.push_back({most, last});
  return curve;
}

/// What was learned, times a factor, as far as memory and trust go.
DeviceCurve curve_by(const LearnedCurves& learned, const DeviceLimits& limits, double factor) {
  std::int64_t most = limits.most;
  if (!limits.prior && learned.is_seen())
    most = std::min(most, std::max<std::int64_t>(1, kTrustedTimes * learned.largest_seen()));
  const auto end = static_cast<double>(most);
  DeviceCurve curve{limits.device, {}};
  if (!learned.is_known()) {
    curve.points = {{0, 0}, {end, kUntried * end}};
    return curve;
  }
  const cost::Curve times = learned.estimate(most).curves.end;
  for (const auto& [samples, seconds] : times.points)
    if (samples < end) curve.points.push_back({samples, std::max(0.0, factor * seconds)});
  curve.points.push_back({end, std::max(0.0, factor * times.at(end))});
  for (std::size_t i = 1; i < curve.points.size(); ++i)
    curve.points[i].seconds = std::max(curve.points[i].seconds, curve.points[i - 1].seconds);
  return curve;
}

}  // namespace

LearnedOptions::LearnedOptions(std::vector<DeviceLimits> devices, std::vector<LearnedGroup> groups)
    : devices_(std::move(devices)), groups_(std::move(groups)), tails_(groups_.size()) {
  MOTLEY_CHECK(!groups_.empty() && groups_.front().devices >= 1);
  MOTLEY_CHECK(groups_.back().devices <= devices_.size());
  for (const DeviceLimits& limits : devices_) curves_.emplace_back(limits.prior);
  if (groups_.front().devices == 1) alone_.emplace(groups_.front().alone.prior);
  apply();
}

void LearnedOptions::observe(const policy::StepSeen& step) {
  const std::vector<policy::Share> shares = shares_of(step);
  if (shares.empty() || (alone_ && shares.size() == 1 && !is_alone(shares))) return;
  const bool has_curves = is_alone(shares) ? learn_alone(step) : learn_curves(step);
  const bool has_tail = learn_tail(step);
  if (!has_curves && !has_tail) return;
  apply();
  ++version_;
}

/// Are they of the group of one?
bool LearnedOptions::is_alone(const std::vector<policy::Share>& shares) const {
  return alone_ && shares.size() == 1 && shares.front().device == devices_.front().device;
}

/// Does it take another time than the curve in use says?
bool LearnedOptions::learn_alone(const policy::StepSeen& step) {
  bool is_new = false;
  for (const policy::DeviceStep& seen : step.devices) {
    if (seen.samples <= 0) continue;
    is_new = seen.samples > alone_->largest_seen();
    (void)alone_->observe(seen, step.step);
    const auto samples = static_cast<double>(seen.samples);
    const double used = work_seconds(options_.front().devices.front(), samples);
    is_new = is_new || std::abs(work_seconds(curve_alone(), samples) - used) > kDiffers * used;
  }
  return is_new;
}

/// Does some device take another time than its curve in use says?
bool LearnedOptions::learn_curves(const policy::StepSeen& step) {
  bool is_new = false;
  double first_ready = 1;
  for (const policy::DeviceStep& seen : step.devices) {
    if (seen.end > 0 && !seen.ready.empty())
      first_ready = std::min(first_ready, seen.ready.front() / seen.end);
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      if (devices_[i].device != seen.device || seen.samples <= 0) continue;
      is_new = is_new || seen.samples > curves_[i].largest_seen();
      (void)curves_[i].observe(seen, step.step);
      const auto samples = static_cast<double>(seen.samples);
      const double used = work_seconds(options_.back().devices[i], samples);
      const double learned = work_seconds(curve_of(i), samples);
      is_new = is_new || std::abs(learned - used) > kDiffers * used;
    }
  }
  keep_last(overlap_.hidden, hidden_of(step.exchange));
  keep_last(overlap_.share, 1 - std::clamp(first_ready, 0.0, 1.0));
  return is_new;
}

/// Does the step's group take another time beyond its devices' own?
bool LearnedOptions::learn_tail(const policy::StepSeen& step) {
  const int group = find_option(options_, shares_of(step));
  if (group < 0) return false;
  ExchangeTimes exchange =
      groups_[static_cast<std::size_t>(group)].devices == 1 ? ExchangeTimes() : overlap();
  double ready = 0;
  for (const policy::DeviceStep& device : step.devices)
    if (device.samples > 0) ready = std::max(ready, ready_seconds(exchange, device.end));
  Tail& tail = tails_[static_cast<std::size_t>(group)];
  const bool is_first = tail.last.empty();
  keep_last(tail.last, std::max(0.0, step.took.value - ready));
  const double middle = median(tail.last);
  if (!is_first && std::abs(middle - tail.used) <= kDiffers * step.took.value) return false;
  tail.used = middle;
  return true;
}

DeviceCurve LearnedOptions::curve_of(std::size_t device) const {
  const DeviceLimits& limits = devices_[device];
  const bool is_seen_alone = device == 0 && alone_ && alone_->is_seen();
  if (!is_seen_alone || curves_[device].is_seen()) return curve_by(curves_[device], limits, 1);
  if (!limits.prior) return curve_by(*alone_, limits, 1);
  return curve_by(curves_[device], limits, alone_->over_prior().value_or(1));
}

/// Of whole steps of the first device by itself.
DeviceCurve LearnedOptions::curve_alone() const {
  const LearnedCurves& among_others = curves_.front();
  const AloneLimits& alone = groups_.front().alone;
  const DeviceLimits limits{devices_.front().device, 1, alone.most, alone.prior};
  if (alone_->is_seen()) return curve_by(*alone_, limits, 1);
  if (alone.prior) return curve_by(*alone_, limits, among_others.over_prior().value_or(1));
  const auto times = static_cast<double>(alone.micro_batches);
  DeviceCurve curve = curve_by(among_others, devices_.front(), times);
  for (CurvePoint& point : curve.points) point.samples *= times;
  return curve_until(std::move(curve), static_cast<double>(alone.most));
}

ExchangeTimes LearnedOptions::overlap() const {
  ExchangeTimes times{Seconds(0), Seconds(0), 0};
  if (overlap_.hidden.empty()) return times;
  times.hidden = Seconds(median(overlap_.hidden));
  times.share = median(overlap_.share);
  return times;
}

double LearnedOptions::believed_tail(std::size_t group) const {
  const auto& believed = groups_[group].exchanges;
  if (!believed) return 0;
  const double last = believed->exchange.empty() ? 0 : believed->exchange.back();
  return last + believed->blocking;
}

double LearnedOptions::tail_of(std::size_t group) const {
  if (!tails_[group].last.empty()) return tails_[group].used;
  std::optional<std::size_t> nearest;
  const auto distance = [&](std::size_t of) { return of > group ? of - group : group - of; };
  for (std::size_t other = 0; other < groups_.size(); ++other)
    if (!tails_[other].last.empty() && (!nearest || distance(other) < distance(*nearest)))
      nearest = other;
  if (!nearest) return believed_tail(group);
  return std::max(0.0, believed_tail(group) - believed_tail(*nearest) + tails_[*nearest].used);
}

ExchangeTimes LearnedOptions::exchange_of(std::size_t group) const {
  ExchangeTimes times = groups_[group].devices == 1 ? ExchangeTimes() : overlap();
  if (overlap_.hidden.empty() && groups_[group].exchanges)
    times.hidden = Seconds(hidden_of(groups_[group].exchanges->exchange));
  times.tail = Seconds(tail_of(group));
  return times;
}

void LearnedOptions::apply() {
  std::vector<DeviceCurve> curves;
  for (std::size_t i = 0; i < devices_.size(); ++i) curves.push_back(curve_of(i));
  options_.clear();
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    BatchOption& option = options_.emplace_back();
    const auto count = static_cast<std::ptrdiff_t>(groups_[g].devices);
    option.name = fmt::format("{} device{}", count, count == 1 ? "" : "s");
    option.devices.assign(curves.begin(), curves.begin() + count);
    if (count == 1) option.devices = {curve_alone()};
    option.exchange = exchange_of(g);
    option.per_hour = groups_[g].per_hour;
  }
}

Json LearnedOptions::state() const {
  Json curves = Json::object(), tails = Json::array();
  for (std::size_t i = 0; i < devices_.size(); ++i) curves[devices_[i].device] = curves_[i].state();
  for (const Tail& tail : tails_) tails.push_back({{"last", tail.last}, {"used", tail.used}});
  Json state = {{"version", version_},
                {"curves", std::move(curves)},
                {"tails", std::move(tails)},
                {"hidden", overlap_.hidden},
                {"share", overlap_.share}};
  if (alone_) state["alone"] = alone_->state();
  return state;
}

Result<void> LearnedOptions::restore(const Json& state, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(state, where));
  MOTLEY_ASSIGN(const std::int64_t version, object.integer("version"));
  MOTLEY_ASSIGN(const Json* curves, object.member("curves"));
  MOTLEY_ASSIGN(const Json* tails, object.member("tails"));
  Overlap overlap;
  MOTLEY_ASSIGN(overlap.hidden, policy::read_numbers(object, "hidden"));
  MOTLEY_ASSIGN(overlap.share, policy::read_numbers(object, "share"));
  std::optional<LearnedCurves> alone;
  if (alone_) {
    MOTLEY_ASSIGN(const Json* json, object.member("alone"));
    MOTLEY_RETURN_IF_ERROR(
        alone.emplace(groups_.front().alone.prior).restore(*json, where + ": alone"));
  }
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  if (!curves->is_object() || curves->size() != devices_.size() || !tails->is_array() ||
      tails->size() != groups_.size())
    return usage_error("adapt.state", fmt::format("{}: wanted curves of {} devices in {} groups",
                                                  where, devices_.size(), groups_.size()));
  std::vector<LearnedCurves> learned;
  for (const DeviceLimits& limits : devices_) {
    if (!curves->contains(limits.device))
      return usage_error("adapt.state", where + ": no device '" + limits.device + "'");
    MOTLEY_RETURN_IF_ERROR(learned.emplace_back(limits.prior)
                               .restore((*curves)[limits.device], where + ": " + limits.device));
  }
  std::vector<Tail> read_tails;
  for (const Json& json : *tails) {
    MOTLEY_ASSIGN(JsonObject each, JsonObject::make(json, where + ": tails"));
    Tail& tail = read_tails.emplace_back();
    MOTLEY_ASSIGN(tail.last, policy::read_numbers(each, "last"));
    MOTLEY_ASSIGN(tail.used, each.number("used"));
    MOTLEY_RETURN_IF_ERROR(each.refuse_unknown());
  }
  curves_ = std::move(learned);
  alone_ = std::move(alone);
  tails_ = std::move(read_tails);
  overlap_ = std::move(overlap);
  version_ = version;
  apply();
  return {};
}

}  // namespace motley::adapt
