#include "motley/adapt/option_source.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "motley/base/json.h"
#include "motley/base/statistics.h"

namespace motley::adapt {
namespace {

constexpr std::size_t kRemembered = 31;  // steps
constexpr double kLeast = 0.005;         // of a step or of a device's work

/// The median of the last values where it is told from what is used: by three standard errors, of
/// which few values say little. `least`: differences below it do not matter.
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

const policy::Share* find_share(const std::vector<policy::Share>& shares,
                                const std::string& device) {
  for (const policy::Share& share : shares)
    if (share.device == device) return &share;
  return nullptr;
}

}  // namespace

int find_option(const std::vector<BatchOption>& options, const std::vector<policy::Share>& shares) {
  int smallest = -1;
  std::size_t least = 0;
  for (std::size_t i = 0; i < options.size(); ++i) {
    const auto& devices = options[i].devices;
    if (devices.size() < shares.size() || (smallest >= 0 && devices.size() >= least)) continue;
    std::size_t found = 0;
    for (const DeviceCurve& curve : devices) found += find_share(shares, curve.device) != nullptr;
    if (found != shares.size()) continue;
    smallest = static_cast<int>(i);
    least = devices.size();
  }
  return smallest;
}

std::vector<policy::Share> shares_of(const policy::StepSeen& step) {
  std::vector<policy::Share> shares;
  for (const policy::DeviceStep& device : step.devices)
    if (device.samples > 0) shares.push_back({device.device, device.samples});
  return shares;
}

std::vector<policy::Share> shares_of(const BatchOption& option,
                                     const std::vector<std::int64_t>& samples) {
  std::vector<policy::Share> shares;
  for (std::size_t i = 0; i < samples.size(); ++i)
    if (samples[i] > 0) shares.push_back({option.devices[i].device, samples[i]});
  return shares;
}

std::vector<std::int64_t> samples_of(const BatchOption& option,
                                     const std::vector<policy::Share>& shares) {
  std::vector<std::int64_t> samples;
  for (const DeviceCurve& curve : option.devices) {
    const policy::Share* share = find_share(shares, curve.device);
    samples.push_back(share ? share->samples : 0);
  }
  return samples;
}

Result<ScaledOptions> ScaledOptions::make(std::vector<BatchOption> options) {
  for (const BatchOption& option : options) MOTLEY_RETURN_IF_ERROR(verify_option(option));
  return ScaledOptions(std::move(options));
}

ScaledOptions::ScaledOptions(std::vector<BatchOption> options)
    : given_(std::move(options)), delays_(given_.size(), Correction{{}, 0}) {
  for (const BatchOption& option : given_)
    for (const DeviceCurve& curve : option.devices) ratios_[curve.device].used = 1;
  apply();
}

void ScaledOptions::set_present(const std::string& device, bool is_there) {
  const bool is_new = is_there ? gone_.erase(device) > 0 : gone_.insert(device).second;
  if (!is_new) return;
  apply();
  ++version_;
}

void ScaledOptions::observe(const policy::StepSeen& step) {
  const std::vector<policy::Share> shares = shares_of(step);
  if (shares.empty()) return;
  bool changed = false;
  for (const policy::DeviceStep& device : step.devices) {
    const auto found = ratios_.find(device.device);
    if (device.samples <= 0 || device.end <= 0 || found == ratios_.end()) continue;
    const DeviceCurve* curve = nullptr;
    for (const BatchOption& option : given_)
      for (const DeviceCurve& each : option.devices)
        if (each.device == device.device) curve = &each;
    const double given = work_seconds(*curve, static_cast<double>(device.samples));
    if (given <= 0) continue;
    Correction& ratio = found->second;
    remember(ratio.last, device.end / given);
    const double used = take_up(ratio.last, ratio.used, kLeast * ratio.used);
    changed = changed || used != ratio.used;
    ratio.used = used;
  }
  if (const int index = find_option(options_, shares); index >= 0) {
    // Beyond what the devices' own seconds of this step explain.
    const std::size_t place = places_[static_cast<std::size_t>(index)];
    const BatchOption& option = given_[place];
    double ready = 0;
    for (const policy::DeviceStep& device : step.devices)
      if (device.samples > 0) ready = std::max(ready, ready_seconds(option.exchange, device.end));
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
    const std::vector<DeviceCurve>& curves = given_[i].devices;
    if (std::any_of(curves.begin(), curves.end(),
                    [&](const DeviceCurve& curve) { return gone_.contains(curve.device); }))
      continue;
    places_.push_back(i);
    BatchOption& option = options_.emplace_back(given_[i]);
    for (DeviceCurve& curve : option.devices)
      for (CurvePoint& point : curve.points) point.seconds *= ratios_[curve.device].used;
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

}  // namespace motley::adapt
