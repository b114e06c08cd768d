#include "motley/adapt/device_limits.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "motley/base/json.h"

namespace motley::adapt {
namespace {

constexpr std::int64_t kPatience = 12;

std::vector<policy::Share> sorted(std::vector<policy::Share> shares) {
  std::erase_if(shares, [](const policy::Share& share) { return share.samples == 0; });
  std::sort(shares.begin(), shares.end(),
            [](const auto& a, const auto& b) { return a.device < b.device; });
  return shares;
}

}  // namespace

std::vector<std::int64_t> even_samples(const std::vector<DeviceLimits>& devices,
                                       std::int64_t batch) {
  return weighted_samples(devices, std::vector<double>(devices.size(), 1.0), batch);
}

std::vector<std::int64_t> weighted_samples(const std::vector<DeviceLimits>& devices,
                                           const std::vector<double>& weights, std::int64_t batch) {
  std::int64_t least = 0, most = 0;
  for (const DeviceLimits& limits : devices) {
    if (limits.most < limits.least) return {};
    least += limits.least;
    most += std::min(limits.most, kNoMost);
  }
  if (batch < least || batch > most) return {};
  // b_i = clip(level * weight_i): bisects the level at which they sum to the batch.
  const auto at = [&](double level, std::size_t i) {
    return std::clamp(level * weights[i], static_cast<double>(devices[i].least),
                      static_cast<double>(std::min(devices[i].most, batch)));
  };
  double low = 0,
         high = static_cast<double>(batch) / *std::min_element(weights.begin(), weights.end());
  for (int round = 0; round < 200; ++round) {
    const double middle = (low + high) / 2;
    double sum = 0;
    for (std::size_t i = 0; i < devices.size(); ++i) sum += at(middle, i);
    (sum < static_cast<double>(batch) ? low : high) = middle;
  }
  std::vector<std::int64_t> samples;
  std::vector<std::pair<double, std::size_t>> rests;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const double exact = at(high, i);
    samples.push_back(static_cast<std::int64_t>(exact + 1e-9));
    rests.emplace_back(static_cast<double>(samples.back()) - exact, i);
  }
  std::sort(rests.begin(), rests.end());
  std::int64_t left = batch - std::accumulate(samples.begin(), samples.end(), std::int64_t{0});
  while (left > 0)
    for (const auto& [rest, i] : rests)
      if (left > 0 && samples[i] < devices[i].most) ++samples[i], --left;
  while (left < 0)
    for (auto rest = rests.rbegin(); rest != rests.rend(); ++rest)
      if (left < 0 && samples[rest->second] > devices[rest->second].least)
        --samples[rest->second], ++left;
  return samples;
}

std::vector<policy::Share> make_shares(const std::vector<DeviceLimits>& devices,
                                       const std::vector<std::int64_t>& samples) {
  std::vector<policy::Share> shares;
  for (std::size_t i = 0; i < samples.size(); ++i)
    if (samples[i] > 0) shares.push_back({devices[i].device, samples[i]});
  return shares;
}

std::vector<std::int64_t> samples_in(const policy::StepSeen& seen,
                                     const std::vector<DeviceLimits>& devices) {
  std::vector<std::int64_t> samples;
  for (const DeviceLimits& limits : devices) {
    const auto found = std::find_if(
        seen.devices.begin(), seen.devices.end(),
        [&](const policy::DeviceStep& device) { return device.device == limits.device; });
    samples.push_back(found == seen.devices.end() ? 0 : found->samples);
  }
  return samples;
}

void AskedSplit::ask(std::vector<policy::Share> shares, std::int64_t step) {
  shares_ = sorted(std::move(shares));
  step_ = step;
}

bool AskedSplit::waits(const policy::StepSeen& seen) {
  if (shares_.empty()) return false;
  std::vector<policy::Share> now;
  for (const policy::DeviceStep& device : seen.devices)
    now.push_back({device.device, device.samples});
  if (sorted(std::move(now)) == shares_ || seen.step > step_ + kPatience) shares_.clear();
  return !shares_.empty();
}

Json AskedSplit::state() const {
  return {{"split", policy::action_to_json(policy::UseSplit{shares_})}, {"step", step_}};
}

Result<void> AskedSplit::restore(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  MOTLEY_ASSIGN(const Json* split, object.member("split"));
  MOTLEY_ASSIGN(policy::Action action, policy::action_from_json(*split, where));
  MOTLEY_ASSIGN(step_, object.integer("step"));
  const auto* shares = std::get_if<policy::UseSplit>(&action);
  if (shares == nullptr) return usage_error("policy.state", where + ": wanted a split");
  shares_ = shares->shares;
  return object.refuse_unknown();
}

}  // namespace motley::adapt
