#include "motley/adapt/learned_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "motley/base/check.h"
#include "motley/base/json_fields.h"
#include "motley/base/statistics.h"

namespace motley::adapt {
namespace {

constexpr double kDiffers = 0.01;          // relative difference of a time that counts
constexpr std::size_t kStepsKept = 16;     // steps
constexpr std::int64_t kTrustedTimes = 3;  // multiple of a device's most samples that is trusted
constexpr double kUntried = 1e-6;          // seconds per sample of an unknown device

void keep_last(std::vector<double>& last, double value) {
  last.push_back(value);
  if (last.size() > kStepsKept) last.erase(last.begin());
}

/// Sums the exchanges that overlap work: all awaited ones but the last.
double hidden_of(const std::vector<double>& exchange) {
  return exchange.size() < 2 ? 0 : std::accumulate(exchange.begin(), exchange.end() - 1, 0.0);
}

DeviceCurve curve_until(DeviceCurve curve, double most) {
  if (curve.points.back().samples <= most) return curve;
  const double last = work_seconds(curve, most);
  std::erase_if(curve.points, [&](const CurvePoint& point) { return point.samples >= most; });
  curve.points.push_back({most, last});
  return curve;
}

/// Returns the learned curve times a factor, as far as memory and trust allow.
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

LearnedOptions::LearnedOptions(std::vector<LearnedDevice> devices, std::vector<LearnedGroup> groups,
                               std::int64_t unit)
    : groups_(std::move(groups)), unit_(unit) {
  MOTLEY_CHECK(!groups_.empty() && groups_.front().devices >= 1);
  MOTLEY_CHECK(groups_.back().devices <= devices.size());
  for (LearnedDevice& device : devices) add(std::move(device));
  apply();
}

void LearnedOptions::add(LearnedDevice device) {
  Known known{std::move(device), LearnedCurves(), {}};
  known.curves = LearnedCurves(known.device.limits.prior);
  if (groups_.front().devices == 1 && known.device.alone.most > 0)
    known.alone.emplace(known.device.alone.prior);
  devices_.push_back(std::move(known));
}

LearnedOptions::Known* LearnedOptions::find(const std::string& device) {
  for (Known& known : devices_)
    if (known.device.limits.device == device) return &known;
  return nullptr;
}

void LearnedOptions::set_present(const std::string& device, bool is_there) {
  Known* known = find(device);
  if (known == nullptr || known->is_there == is_there) return;
  known->is_there = is_there;
  apply();
  ++version_;
}

void LearnedOptions::observe(const policy::StepSeen& step) {
  const std::vector<policy::Share> shares = shares_of(step);
  if (shares.empty()) return;
  bool has_curves = false;
  for (const policy::Share& share : shares) {
    if (find(share.device) != nullptr) continue;
    add({.limits = {.device = share.device}});
    has_curves = true;
  }
  if (shares.size() > 1 || groups_.front().devices > 1) {
    has_curves = learn_curves(step) || has_curves;
  } else {
    for (const policy::DeviceStep& seen : step.devices)
      if (seen.samples > 0) has_curves = learn_alone(seen, step.step) || has_curves;
  }
  const bool has_tail = learn_tail(step);
  if (!has_curves && !has_tail) return;
  apply();
  ++version_;
}

/// Returns the present curve, of the device alone or in a group; null: there is no such option.
const DeviceCurve* LearnedOptions::used_curve(const std::string& device, bool is_alone) const {
  for (const BatchOption& option : options_)
    for (const DeviceCurve& curve : option.devices)
      if (curve.device == device && (option.devices.size() == 1) == is_alone) return &curve;
  return nullptr;
}

/// Learns, and returns whether the time differs from the present curve.
bool LearnedOptions::learn_alone(const policy::DeviceStep& seen, std::int64_t step) {
  Known& known = *find(seen.device);
  if (!known.alone) return false;
  const bool is_new = seen.samples > known.alone->largest_seen();
  (void)known.alone->observe(seen, step);
  const DeviceCurve* in_use = used_curve(seen.device, true);
  if (in_use == nullptr) return false;
  const auto samples = static_cast<double>(seen.samples);
  const double used = work_seconds(*in_use, samples);
  return is_new || std::abs(work_seconds(curve_alone(known), samples) - used) > kDiffers * used;
}

/// Learns, and returns whether some device's time differs from its present curve.
bool LearnedOptions::learn_curves(const policy::StepSeen& step) {
  bool is_new = false;
  double first_ready = 1;
  for (const policy::DeviceStep& seen : step.devices) {
    if (seen.end > 0 && !seen.ready.empty())
      first_ready = std::min(first_ready, seen.ready.front() / seen.end);
    if (seen.samples <= 0) continue;
    Known& known = *find(seen.device);
    is_new = is_new || seen.samples > known.curves.largest_seen();
    (void)known.curves.observe(seen, step.step);
    const DeviceCurve* in_use = used_curve(seen.device, false);
    if (in_use == nullptr) continue;
    const auto samples = static_cast<double>(seen.samples);
    const double used = work_seconds(*in_use, samples);
    const double learned = work_seconds(curve_of(known), samples);
    is_new = is_new || std::abs(learned - used) > kDiffers * used;
  }
  keep_last(overlap_.hidden, hidden_of(step.exchange));
  keep_last(overlap_.share, 1 - std::clamp(first_ready, 0.0, 1.0));
  return is_new;
}

/// Learns, and returns whether the group's time beyond its devices' own differs.
bool LearnedOptions::learn_tail(const policy::StepSeen& step) {
  const int group = find_option(options_, shares_of(step));
  if (group < 0) return false;
  const std::size_t count = options_[static_cast<std::size_t>(group)].devices.size();
  ExchangeTimes exchange = count == 1 ? ExchangeTimes() : overlap();
  double ready = 0;
  for (const policy::DeviceStep& device : step.devices)
    if (device.samples > 0) ready = std::max(ready, ready_seconds(exchange, device.end));
  Tail& tail = tails_[count];
  const bool is_first = tail.last.empty();
  keep_last(tail.last, std::max(0.0, step.took.value - ready));
  const double middle = median(tail.last);
  if (!is_first && std::abs(middle - tail.used) <= kDiffers * step.took.value) return false;
  tail.used = middle;
  return true;
}

DeviceCurve LearnedOptions::curve_of(const Known& known) {
  const DeviceLimits& limits = known.device.limits;
  const bool is_seen_alone = known.alone && known.alone->is_seen();
  if (!is_seen_alone || known.curves.is_seen()) return curve_by(known.curves, limits, 1);
  if (!limits.prior) return curve_by(*known.alone, limits, 1);
  return curve_by(known.curves, limits, known.alone->over_prior().value_or(1));
}

DeviceCurve LearnedOptions::curve_alone(const Known& known) {
  const AloneLimits& alone = known.device.alone;
  const DeviceLimits limits{known.device.limits.device, 1, alone.most, alone.prior};
  if (known.alone->is_seen()) return curve_by(*known.alone, limits, 1);
  if (alone.prior) return curve_by(*known.alone, limits, known.curves.over_prior().value_or(1));
  const auto times = static_cast<double>(alone.micro_batches);
  DeviceCurve curve = curve_by(known.curves, known.device.limits, times);
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

/// Returns the prior of a group of this size, or of the next smaller one; null: none.
const cost::GroupExchanges* LearnedOptions::believed(std::size_t devices) const {
  const cost::GroupExchanges* found = nullptr;
  for (const LearnedGroup& group : groups_)
    if (group.devices <= devices && group.exchanges) found = &*group.exchanges;
  return devices == 1 ? nullptr : found;
}

double LearnedOptions::believed_tail(std::size_t devices) const {
  const cost::GroupExchanges* times = believed(devices);
  if (times == nullptr) return 0;
  return (times->exchange.empty() ? 0 : times->exchange.back()) + times->blocking;
}

double LearnedOptions::tail_of(std::size_t devices) const {
  const auto distance = [&](std::size_t of) { return of > devices ? of - devices : devices - of; };
  auto nearest = tails_.end();
  for (auto each = tails_.begin(); each != tails_.end(); ++each)
    if (nearest == tails_.end() || distance(each->first) < distance(nearest->first)) nearest = each;
  if (nearest == tails_.end()) return believed_tail(devices);
  const auto& [count, tail] = *nearest;
  if (count == devices) return tail.used;
  return std::max(0.0, believed_tail(devices) - believed_tail(count) + tail.used);
}

ExchangeTimes LearnedOptions::exchange_of(std::size_t devices) const {
  ExchangeTimes times = devices == 1 ? ExchangeTimes() : overlap();
  const cost::GroupExchanges* belief = believed(devices);
  if (overlap_.hidden.empty() && belief != nullptr)
    times.hidden = Seconds(hidden_of(belief->exchange));
  times.tail = Seconds(tail_of(devices));
  return times;
}

BatchOption LearnedOptions::make_option(const std::vector<const Known*>& devices) const {
  const std::size_t count = devices.size();
  BatchOption option;
  option.name = fmt::format("{} device{}", count, count == 1 ? "" : "s");
  option.unit = unit_;
  std::map<std::string, double> machines;
  for (const Known* each : devices) {
    option.devices.push_back(count == 1 && each->alone ? curve_alone(*each) : curve_of(*each));
    machines[each->device.machine] = each->device.per_hour;
  }
  for (const auto& [machine, per_hour] : machines) option.per_hour += per_hour;
  option.exchange = exchange_of(count);
  return option;
}

void LearnedOptions::apply() {
  std::vector<const Known*> there;
  for (const Known& known : devices_)
    if (known.is_there) there.push_back(&known);
  std::set<std::size_t> sizes;
  for (const LearnedGroup& group : groups_)
    if (group.devices <= there.size()) sizes.insert(group.devices);
  if (there.size() > groups_.front().devices) sizes.insert(there.size());
  options_.clear();
  for (const std::size_t size : sizes) {
    if (size == 1 && groups_.front().devices == 1 && !there.front()->alone) continue;
    const std::vector<const Known*> first(there.begin(),
                                          there.begin() + static_cast<std::ptrdiff_t>(size));
    options_.push_back(make_option(first));
  }
}

Json LearnedOptions::state() const {
  Json devices = Json::object(), tails = Json::array();
  for (const Known& known : devices_) {
    Json& device = devices[known.device.limits.device];
    device = {{"curves", known.curves.state()}, {"is_there", known.is_there}};
    if (known.alone) device["alone"] = known.alone->state();
  }
  for (const auto& [count, tail] : tails_)
    tails.push_back({{"devices", count}, {"last", tail.last}, {"used", tail.used}});
  return {{"version", version_},
          {"devices", std::move(devices)},
          {"tails", std::move(tails)},
          {"hidden", overlap_.hidden},
          {"share", overlap_.share}};
}

Result<void> LearnedOptions::restore(const Json& state, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(state, where));
  MOTLEY_ASSIGN(const std::int64_t version, object.integer("version"));
  MOTLEY_ASSIGN(const Json* devices, object.member("devices"));
  MOTLEY_ASSIGN(const Json* tails, object.member("tails"));
  Overlap overlap;
  MOTLEY_RETURN_IF_ERROR(
      FieldReader(object)("hidden", overlap.hidden)("share", overlap.share).result());
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  if (!devices->is_object() || !tails->is_array())
    return usage_error("adapt.state", where + ": wanted curves of devices and tails of groups");
  std::vector<Known> known = devices_;
  for (const auto& [name, json] : devices->items())
    MOTLEY_RETURN_IF_ERROR(restore_device(json, name, where + ": " + name, known));
  std::map<std::size_t, Tail> read_tails;
  for (const Json& json : *tails) {
    MOTLEY_ASSIGN(JsonObject each, JsonObject::make(json, where + ": tails"));
    MOTLEY_ASSIGN(const std::int64_t count, each.integer("devices"));
    if (count < 1) return usage_error("adapt.state", each.where() + ": wanted 1 device or more");
    Tail& tail = read_tails[static_cast<std::size_t>(count)];
    MOTLEY_RETURN_IF_ERROR(FieldReader(each)("last", tail.last)("used", tail.used).result());
    MOTLEY_RETURN_IF_ERROR(each.refuse_unknown());
  }
  devices_ = std::move(known);
  tails_ = std::move(read_tails);
  overlap_ = std::move(overlap);
  version_ = version;
  apply();
  return {};
}

Result<void> LearnedOptions::restore_device(const Json& json, const std::string& name,
                                            const std::string& where, std::vector<Known>& known) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  MOTLEY_ASSIGN(const Json* curves, object.member("curves"));
  MOTLEY_ASSIGN(const bool is_there, object.boolean("is_there"));
  const auto place = std::find_if(known.begin(), known.end(), [&](const Known& each) {
    return each.device.limits.device == name;
  });
  if (place == known.end()) return usage_error("adapt.state", where + ": there is no such device");
  place->is_there = is_there;
  place->curves = LearnedCurves(place->device.limits.prior);
  MOTLEY_RETURN_IF_ERROR(place->curves.restore(*curves, where));
  if (object.has("alone") != place->alone.has_value())
    return usage_error("adapt.state", where + ": it trains alone in one of the two only");
  if (place->alone) {
    MOTLEY_ASSIGN(const Json* alone, object.member("alone"));
    place->alone.emplace(place->device.alone.prior);
    MOTLEY_RETURN_IF_ERROR(place->alone->restore(*alone, where + ": alone"));
  }
  return object.refuse_unknown();
}

}  // namespace motley::adapt
