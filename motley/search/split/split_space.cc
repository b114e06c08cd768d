#include "motley/search/split/split_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "motley/base/check.h"
#include "motley/base/text.h"

namespace motley::search {
namespace {

using plan::Problem;
using Setting = SplitEvaluator::Setting;

/// Finds the largest batch in [least, most] whose peak is within the limit; 0 if there is none.
/// Peaks are nearly linear in the samples: the next try is where the line through the last two
/// crosses the limit, or the middle if that does not halve the range.
std::int64_t find_cap(const SplitEvaluator& evaluator, DeviceId device, Setting setting,
                      Bytes limit, std::int64_t least, std::int64_t most) {
  // bytes above the limit; a graph that cannot be lowered is far above
  const auto excess = [&](std::int64_t samples) {
    return static_cast<double>(evaluator.peak_bytes(device, samples, setting).value) -
           static_cast<double>(limit.value);
  };
  if (least > most) return 0;
  std::int64_t inside = least, outside = most;
  double below = excess(inside), above = excess(outside);
  if (below > 0) return 0;
  if (above <= 0) return most;
  for (bool is_line = true; outside - inside > 1;) {
    const std::int64_t width = outside - inside;
    const double crossing = static_cast<double>(width) * -below / (above - below);
    const std::int64_t step =
        is_line ? std::clamp<std::int64_t>(std::llround(crossing), 1, width - 1) : width / 2;
    const double middle = excess(inside + step);
    if (middle <= 0) {
      inside += step;
      below = middle;
    } else {
      outside = inside + step;
      above = middle;
    }
    is_line = outside - inside <= width / 2;
  }
  return inside;
}

bool is_same(const StepCurves& a, const StepCurves& b) { return &a == &b || a == b; }

}  // namespace

Setting setting_of(const BatchSplit& split) {
  return split.devices.size() == 1 ? Setting::kAlone : Setting::kShared;
}

Result<SplitSpace> SplitSpace::make(const Problem& problem, const SplitEvaluator& evaluator) {
  MOTLEY_CHECK(problem.cluster != nullptr);
  MOTLEY_CHECK(problem.min_samples >= 1 && problem.max_samples >= problem.min_samples);
  if (problem.devices.empty()) {
    return usage_error("search.no-devices",
                       "no device is left to plan for; exclude fewer of the cluster's");
  }
  if (problem.global_batch < 1) {
    return usage_error("search.batch", fmt::format("global batch {}: wanted at least 1 sample",
                                                   problem.global_batch));
  }
  SplitSpace space(problem, evaluator);
  for (const DeviceId device : problem.devices) space.add_device(device);
  return space;
}

void SplitSpace::add_device(DeviceId device) {
  const SplitEvaluator& evaluator = *evaluator_;
  DeviceType type;
  type.alone = &evaluator.curves(device, Setting::kAlone);
  type.shared = &evaluator.curves(device, Setting::kShared);
  type.memory = problem_->cluster->device(device).room();
  auto found = std::find_if(types_.begin(), types_.end(), [&](const DeviceType& other) {
    return other.memory == type.memory && is_same(*other.alone, *type.alone) &&
           is_same(*other.shared, *type.shared);
  });
  if (found == types_.end()) {
    type.update_tails = update_tails(*type.shared);
    type.shares_points = cost::share_points(*type.shared);
    type.shared_cap = find_cap(device, Setting::kShared);
    const bool holds_all =
        batch() <= problem_->max_samples && batch() >= least() &&
        (!type.memory || evaluator.peak_bytes(device, batch(), Setting::kAlone) <= *type.memory);
    type.alone_cap = holds_all ? batch() : kNotAll;
    found = types_.insert(types_.end(), std::move(type));
  }
  found->members.push_back(device);
  type_of_[device] = static_cast<std::size_t>(found - types_.begin());
}

std::int64_t SplitSpace::find_cap(DeviceId device, Setting setting) const {
  const std::int64_t most = std::min(problem_->global_batch, problem_->max_samples);
  const auto memory = problem_->cluster->device(device).room();
  if (least() > most) return 0;
  if (!memory) return most;
  return search::find_cap(evaluator(), device, setting, *memory, least(), most);
}

std::int64_t SplitSpace::cap(DeviceId device, Setting setting) const {
  const DeviceType& type = types_[type_of(device)];
  if (setting == Setting::kShared) return type.shared_cap;
  return type.alone_cap == kNotAll ? find_cap(device, setting) : type.alone_cap;
}

std::vector<Bytes> SplitSpace::peaks(const BatchSplit& split) const {
  std::vector<Bytes> peaks;
  for (std::size_t i = 0; i < split.devices.size(); ++i) {
    peaks.push_back(evaluator().peak_bytes(split.devices[i], split.samples[i], setting_of(split)));
  }
  return peaks;
}

std::vector<std::string> SplitSpace::find_faults(const BatchSplit& split) const {
  std::vector<std::string> faults;
  for (std::size_t i = 0; i < split.devices.size(); ++i) {
    const DeviceId device = split.devices[i];
    const std::int64_t samples = split.samples[i];
    if (samples < least() || samples > problem_->max_samples) {
      faults.push_back(fmt::format("{} gets {} samples, the model takes {} to {} on a device",
                                   name(device), samples, least(), problem_->max_samples));
      continue;
    }
    const auto& memory = types_[type_of(device)].memory;
    if (!memory) continue;
    const Bytes peak = evaluator().peak_bytes(device, samples, setting_of(split));
    if (peak <= *memory) continue;
    const std::int64_t most = cap(device, setting_of(split));
    faults.push_back(
        fmt::format("{} needs {} for {} samples, has {}: {}", name(device), format_bytes(peak),
                    samples, format_bytes(*memory),
                    most == 0 ? "not even one fits" : fmt::format("at most {} fit", most)));
  }
  return faults;
}

bool SplitSpace::lower_caps(const BatchSplit& split) {
  bool lowered = false;
  const std::vector<Bytes> peaks = this->peaks(split);
  for (std::size_t i = 0; i < split.devices.size(); ++i) {
    DeviceType& type = types_[type_of(split.devices[i])];
    if (!type.memory || peaks[i] <= *type.memory) continue;
    std::int64_t& cap = split.devices.size() == 1 ? type.alone_cap : type.shared_cap;
    cap = std::min(cap, split.samples[i] - 1);
    if (cap < least()) cap = 0;
    lowered = true;
  }
  return lowered;
}

std::string SplitSpace::name_members(const std::vector<DeviceId>& devices) const {
  if (devices.size() == 1) return name(devices[0]);
  if (devices.size() == 2) return name(devices[0]) + " and " + name(devices[1]);
  if (devices.size() == 3) {
    return fmt::format("{}, {} and {}", name(devices[0]), name(devices[1]), name(devices[2]));
  }
  return fmt::format("{}, {} and {} more", name(devices[0]), name(devices[1]), devices.size() - 2);
}

std::vector<std::string> SplitSpace::explain_infeasible() const {
  if (batch() < least()) {
    return {fmt::format("global batch {} is smaller than the least batch of the model, {}", batch(),
                        least())};
  }
  // A group is allowed if its caps hold the batch and the batch feeds all members. The easiest
  // group has the largest caps and the fewest members that hold the batch.
  std::vector<std::int64_t> caps;
  for (const DeviceType& type : types_) {
    if (type.alone_cap >= batch()) return {};
    if (type.shared_cap > 0) caps.insert(caps.end(), type.members.size(), type.shared_cap);
  }
  std::sort(caps.rbegin(), caps.rend());
  std::int64_t total = 0;
  for (std::size_t k = 0; k < caps.size(); ++k) {
    total += caps[k];
    const auto members = static_cast<std::int64_t>(k) + 1;
    if (members >= 2 && total >= batch() && members <= batch() / least()) return {};
  }
  std::vector<std::string> sentences;
  for (const DeviceType& type : types_) {
    if (type.shared_cap > 0 || !type.memory) continue;
    const Bytes need = evaluator().peak_bytes(type.members[0], least(), Setting::kShared);
    sentences.push_back(fmt::format("{} {} {} for {} sample{}, {} {}", name_members(type.members),
                                    type.members.size() == 1 ? "needs" : "need", format_bytes(need),
                                    least(), least() == 1 ? "" : "s",
                                    type.members.size() == 1 ? "has" : "have",
                                    format_bytes(*type.memory)));
  }
  sentences.push_back(explain_total());
  return sentences;
}

std::string SplitSpace::explain_total() const {
  std::int64_t total = 0;
  std::vector<std::string> parts;
  for (const DeviceType& type : types_) {
    total += type.shared_cap * static_cast<std::int64_t>(type.members.size());
    parts.push_back(fmt::format("{} {}{}", name_members(type.members), type.shared_cap,
                                type.members.size() > 1 ? " each" : ""));
  }
  if (problem_->devices.size() == 1) {
    return fmt::format(
        "{} holds {} samples within its memory and the model's limit of {}, the "
        "global batch is {}",
        name(problem_->devices[0]), cap(problem_->devices[0], Setting::kAlone),
        problem_->max_samples, batch());
  }
  if (total >= batch()) {
    return fmt::format(
        "no number of devices divides the global batch of {}: each takes {} samples "
        "or more and at most {}",
        batch(), least(), join(parts, ", "));
  }
  return fmt::format(
      "together the devices hold {} samples within their memory and the model's "
      "limit of {}, the global batch is {}: {}",
      total, problem_->max_samples, batch(), join(parts, ", "));
}

}  // namespace motley::search
