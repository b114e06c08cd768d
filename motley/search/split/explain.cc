#include "motley/search/split/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "motley/base/text.h"
#include "motley/search/split/split_search.h"

namespace motley::search {
namespace {

using Setting = SplitEvaluator::Setting;

/// fraction of the step; a device that ends this close to the last one binds
constexpr double kBinding = 0.02;
/// device types that get a sentence each
constexpr std::size_t kMaxTypes = 8;

struct Part {
  std::vector<DeviceId> devices;
  std::int64_t least = 0, most = 0;
};

std::map<std::size_t, Part> parts_of(const SplitSpace& space, const BatchSplit& split) {
  std::map<std::size_t, Part> parts;
  for (std::size_t i = 0; i < split.devices.size(); ++i) {
    Part& part = parts[space.type_of(split.devices[i])];
    if (part.devices.empty()) part.least = part.most = split.samples[i];
    part.devices.push_back(split.devices[i]);
    part.least = std::min(part.least, split.samples[i]);
    part.most = std::max(part.most, split.samples[i]);
  }
  return parts;
}

std::string describe_share(const SplitSpace& space, const Part& part) {
  const std::string names = space.name_members(part.devices);
  if (part.devices.size() == 1) {
    return fmt::format("{} gets {} of {} samples", names, part.least, space.batch());
  }
  const std::string each = part.least == part.most ? fmt::format("{}", part.least)
                                                   : fmt::format("{} to {}", part.least, part.most);
  return fmt::format("{} get {} of {} samples each", names, each, space.batch());
}

/// Adds each type's samples, and its speed relative to the slowest at the mean share.
void add_shares(const SplitSpace& space, const BatchSplit& split, std::vector<std::string>& why) {
  const auto parts = parts_of(space, split);
  const double share =
      static_cast<double>(space.batch()) / static_cast<double>(split.devices.size());
  const auto seconds = [&](std::size_t type) { return space.types()[type].shared->end.at(share); };
  std::size_t slowest = parts.begin()->first;
  for (const auto& [type, part] : parts) {
    if (seconds(type) > seconds(slowest)) slowest = type;
  }
  std::size_t told = 0;
  for (const auto& [type, part] : parts) {
    if (++told > kMaxTypes) {
      why.push_back(fmt::format("{} more kinds of devices get the rest", parts.size() - kMaxTypes));
      break;
    }
    std::string sentence = describe_share(space, part);
    if (type != slowest && seconds(type) > 0) {
      sentence += fmt::format(
          ": {} {:.1f}x as fast as {}", part.devices.size() == 1 ? "it is" : "each is",
          seconds(slowest) / seconds(type), space.name(parts.at(slowest).devices.front()));
    }
    why.push_back(std::move(sentence));
  }
}

void add_full_devices(const SplitSpace& space, const BatchSplit& split,
                      std::vector<std::string>& why) {
  for (const auto& [number, part] : parts_of(space, split)) {
    const DeviceType& type = space.types()[number];
    const std::int64_t cap = split.devices.size() == 1 ? type.alone_cap : type.shared_cap;
    if (!type.memory || part.most < cap ||
        cap == std::min(space.batch(), space.problem().max_samples)) {
      continue;
    }
    const Bytes peak =
        space.evaluator().peak_bytes(part.devices.front(), part.most, setting_of(split));
    const std::string need =
        part.most == 1 ? "1 sample needs" : fmt::format("{} samples need", part.most);
    why.push_back(fmt::format("{} {} full: {} {} of {}", space.name_members(part.devices),
                              part.devices.size() == 1 ? "is" : "are", need, format_bytes(peak),
                              format_bytes(*type.memory)));
  }
}

double exchange_total(const SplitSpace& space, const std::vector<DeviceId>& devices) {
  if (devices.size() < 2) return 0.0;
  const GroupExchanges times = space.evaluator().group_times(devices);
  double total = times.blocking;
  for (const double seconds : times.exchange) total += seconds;
  return total;
}

std::string describe_idle(const SplitSpace& space, const BatchSplit& split, DeviceId device) {
  const DeviceType& type = space.types()[space.type_of(device)];
  if (type.shared_cap == 0) {
    const Bytes need = space.evaluator().peak_bytes(device, space.least(), Setting::kShared);
    return fmt::format("{} sample{} would need {} of its {}", space.least(),
                       space.least() == 1 ? "" : "s", format_bytes(need),
                       format_bytes(type.memory.value_or(Bytes(0))));
  }
  std::vector<DeviceId> devices = split.devices;
  devices.insert(std::upper_bound(devices.begin(), devices.end(), device), device);
  const auto with = find_best_split_of(space, devices);
  if (!with) return "no sample is left for it";
  const double longer = model_step(space.evaluator(), *with) - model_step(space.evaluator(), split);
  if (longer <= 0) return "with it the step would be no shorter";
  std::string text =
      fmt::format("with it the step would take {} longer", format_seconds(Seconds(longer)));
  const double exchange = exchange_total(space, devices) - exchange_total(space, split.devices);
  if (exchange > 0) {
    text += fmt::format(" (the exchange {} more)", format_seconds(Seconds(exchange)));
  }
  return text;
}

void add_idle_devices(const SplitSpace& space, const BatchSplit& split,
                      const std::vector<DeviceId>& idle, std::vector<std::string>& why) {
  std::map<std::size_t, std::vector<DeviceId>> by_type;
  for (const DeviceId device : idle) by_type[space.type_of(device)].push_back(device);
  std::size_t told = 0;
  for (const auto& [type, devices] : by_type) {
    if (++told > kMaxTypes) {
      why.push_back(fmt::format("{} more kinds of devices stay idle", by_type.size() - kMaxTypes));
      break;
    }
    why.push_back(fmt::format("{} {} idle: {}", space.name_members(devices),
                              devices.size() == 1 ? "stays" : "stay",
                              describe_idle(space, split, devices.front())));
  }
}

/// Describes what the last devices spend their time on.
std::string describe_binding(const SplitSpace& space, const BatchSplit& split) {
  if (split.devices.size() == 1) {
    return fmt::format("binding: compute on {}, which works alone", space.name(split.devices[0]));
  }
  const GroupExchanges times = space.evaluator().group_times(split.devices);
  std::vector<double> slowest(times.exchange.size(), 0.0);
  for (const DeviceId device : split.devices) {
    const auto& tails = space.types()[space.type_of(device)].update_tails;
    for (std::size_t k = 0; k < slowest.size(); ++k) slowest[k] = std::max(slowest[k], tails[k]);
  }
  const std::vector<double> tails = exchange_tails(times.exchange, slowest);
  std::vector<double> seconds;
  std::vector<bool> waits;  // waits for exchanges after its own compute
  for (std::size_t i = 0; i < split.devices.size(); ++i) {
    const DeviceType& type = space.types()[space.type_of(split.devices[i])];
    const auto samples = static_cast<double>(split.samples[i]);
    const double compute =
        type.shared->end.at(samples) + (type.update_tails.empty() ? 0.0 : type.update_tails[0]);
    seconds.push_back(step_seconds(*type.shared, tails, samples));
    waits.push_back(seconds.back() > compute);
  }
  const double last = *std::max_element(seconds.begin(), seconds.end());
  double earliest = last;
  std::vector<DeviceId> computing, exchanging;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    if (seconds[i] < last * (1 - kBinding)) continue;
    earliest = std::min(earliest, seconds[i]);
    (waits[i] ? exchanging : computing).push_back(split.devices[i]);
  }
  const auto who = [&](const std::vector<DeviceId>& devices) {
    return devices.size() == split.devices.size() ? "all devices" : space.name_members(devices);
  };
  std::vector<std::string> clauses;
  if (!computing.empty()) clauses.push_back("compute on " + who(computing));
  if (!exchanging.empty()) clauses.push_back("exchange of gradients with " + who(exchanging));
  std::string text = "binding: " + join(clauses, ", ");
  if (computing.size() + exchanging.size() > 1) {
    text += fmt::format(", balanced to {:.1f} %", 100 * (last - earliest) / last);
  }
  return text;
}

}  // namespace

std::vector<std::string> explain_split(const SplitSpace& space, const BatchSplit& split,
                                       const std::vector<DeviceId>& idle) {
  std::vector<std::string> why;
  add_shares(space, split, why);
  add_full_devices(space, split, why);
  add_idle_devices(space, split, idle, why);
  why.push_back(describe_binding(space, split));
  return why;
}

}  // namespace motley::search
