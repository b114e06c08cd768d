#include "peers/policies/scaled_options.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "motley/base/json.h"
#include "motley/base/statistics.h"

namespace motley::peers {
namespace {

constexpr std::size_t kRemembered = 31;  // steps
constexpr double kLeast = 0.005;         // of a step or of a device's work

/// Returns the median of the last values where it differs from the one in use by three standard
/// errors (with few values, by more). `least`: smaller differences do not count.
double take_up(const std::vector<double>& last, double used, double least) {
  const Scatter scatter = find_scatter(last);
  const double n = static_cast<double>(last.size());
  constexpr double kMedianError = 1.2533;  // of a median, over a mean's (normal distribution)
  const double error = kMadToDeviation * scatter.deviation * kMedianError / std::sqrt(n);
  const double few = last.size() < 5 ? 10 * least : 0;
  return std::abs(scatter.middle - used) > std::max({least, 3 * error, few}) ? scatter.middle
                                                                             : used;
}

void remember(std::vector<double>& last, double value) {
  if (!std::isfinite(value)) return;
  if (last.size() == kRemembered) last.erase(last.begin());
  last.push_back(value);
}

}  // namespace

Result<ScaledOptions> ScaledOptions::make(std::vector<adapt::BatchOption> options) {
  for (const adapt::BatchOption& option : options)
    MOTLEY_RETURN_IF_ERROR(adapt::verify_option(option));
  return ScaledOptions(std::move(options));
}

ScaledOptions::ScaledOptions(std::vector<adapt::BatchOption> options)
    : given_(std::move(options)), delays_(given_.size(), Correction{{}, 0}) {
  for (const adapt::BatchOption& option : given_)
    for (const adapt::DeviceCurve& curve : option.devices) ratios_[curve.device].used = 1;
  apply();
}

void ScaledOptions::set_present(const std::string& device, bool is_there) {
  const bool is_new = is_there ? gone_.erase(device) > 0 : gone_.insert(device).second;
  if (!is_new) return;
  apply();
  ++version_;
}

void ScaledOptions::observe(const policy::StepSeen& step) {
  const std::vector<policy::Share> shares = adapt::shares_of(step);
  if (shares.empty()) return;
  bool changed = false;
  for (const policy::DeviceStep& device : step.devices) {
    const auto found = ratios_.find(device.device);
    if (device.samples <= 0 || device.end <= 0 || found == ratios_.end()) continue;
    const adapt::DeviceCurve* curve = nullptr;
    for (const adapt::BatchOption& option : given_)
      for (const adapt::DeviceCurve& each : option.devices)
        if (each.device == device.device) curve = &each;
    const double given = adapt::work_seconds(*curve, static_cast<double>(device.samples));
    if (given <= 0) continue;
    Correction& ratio = found->second;
    remember(ratio.last, device.end / given);
    const double used = take_up(ratio.last, ratio.used, kLeast * ratio.used);
    changed = changed || used != ratio.used;
    ratio.used = used;
  }
  if (const int index = adapt::find_option(options_, shares); index >= 0) {
    // The rest beyond the devices' own seconds of this step.
    const std::size_t place = places_[static_cast<std::size_t>(index)];
    const adapt::BatchOption& option = given_[place];
    double ready = 0;
    for (const policy::DeviceStep& device : step.devices)
      if (device.samples > 0)
        ready = std::max(ready, adapt::ready_seconds(option.exchange, device.end));
    Correction& delay = delays_[place];
    remember(delay.last, step.took.value - ready - option.exchange.tail.value);
    const double used = take_up(delay.last, delay.used, kLeast * step.took.value);
    changed = changed || used != delay.used;
    delay.used = used;
  }
  if (!changed) return;
  apply();
  ++version_;
}

void ScaledOptions::apply() {
  options_.clear();
  places_.clear();
  for (std::size_t i = 0; i < given_.size(); ++i) {
    const std::vector<adapt::DeviceCurve>& curves = given_[i].devices;
    if (std::any_of(curves.begin(), curves.end(),
                    [&](const adapt::DeviceCurve& curve) { return gone_.contains(curve.device); }))
      continue;
    places_.push_back(i);
    adapt::BatchOption& option = options_.emplace_back(given_[i]);
    for (adapt::DeviceCurve& curve : option.devices)
      for (adapt::CurvePoint& point : curve.points) point.seconds *= ratios_[curve.device].used;
    Seconds& tail = option.exchange.tail;
    tail = std::max(Seconds(0), tail + Seconds(delays_[i].used));
  }
}

Json ScaledOptions::state() const {
  const auto write = [](const Correction& of) {
    return Json{{"last", of.last}, {"used", of.used}};
  };
  Json ratios = Json::object(), delays = Json::array();
  for (const auto& [device, ratio] : ratios_) ratios[device] = write(ratio);
  for (const Correction& delay : delays_) delays.push_back(write(delay));
  return {{"version", version_}, {"ratios", ratios}, {"delays", delays}, {"gone", gone_}};
}

Result<void> ScaledOptions::restore(const Json& state, const std::string& where) {
  const auto read = [&](const Json& json, const std::string& place) -> Result<Correction> {
    MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, place));
    Correction of;
    MOTLEY_ASSIGN(const Json* last, object.member("last"));
    MOTLEY_ASSIGN(of.used, object.number("used"));
    MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
    const auto is_number = [](const Json& x) { return x.is_number(); };
    if (!last->is_array() || last->size() > kRemembered ||
        !std::all_of(last->begin(), last->end(), is_number))
      return usage_error("adapt.state", place + ": key 'last': wanted numbers");
    of.last = last->get<std::vector<double>>();
    return of;
  };
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(state, where));
  MOTLEY_ASSIGN(const std::int64_t version, object.integer("version"));
  MOTLEY_ASSIGN(const Json* ratios, object.member("ratios"));
  MOTLEY_ASSIGN(const Json* delays, object.member("delays"));
  MOTLEY_ASSIGN(const std::vector<std::string> gone, object.strings("gone"));
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  if (!ratios->is_object() || ratios->size() != ratios_.size() || !delays->is_array() ||
      delays->size() != delays_.size())
    return usage_error("adapt.state", where + ": wanted corrections of " +
                                          std::to_string(ratios_.size()) + " devices and " +
                                          std::to_string(delays_.size()) + " groups of them");
  std::map<std::string, Correction> read_ratios;
  std::vector<Correction> read_delays;
  for (const auto& [device, json] : ratios->items()) {
    if (!ratios_.contains(device))
      return usage_error("adapt.state", where + ": no device '" + device + "' here");
    MOTLEY_ASSIGN(read_ratios[device], read(json, where + ": " + device));
  }
  for (const Json& json : *delays) {
    MOTLEY_ASSIGN(Correction delay, read(json, where + ": delays"));
    read_delays.push_back(std::move(delay));
  }
  ratios_ = std::move(read_ratios);
  delays_ = std::move(read_delays);
  gone_ = {gone.begin(), gone.end()};
  version_ = version;
  apply();
  return {};
}

}  // namespace motley::peers
