#include "motley/search/price/priced_identical.h"

#include <fmt/format.h>

#include <cmath>
#include <tuple>
#include <utility>

#include "motley/cost/device_keys.h"

namespace motley::search {
namespace {

/// Rate of a device's work, in threads at full speed.
double work_rate(const cluster::Device& device) { return device.speed * device.threads; }

}  // namespace

std::optional<DeviceId> find_identical(const Costs& costs, const cluster::Cluster& cluster,
                                       DeviceId device) {
  const cluster::Device& wanted = cluster.device(device);
  const cost::DeviceKey key = cost::device_key(wanted, "");
  std::optional<DeviceId> best;
  std::tuple<bool, bool, double> least;
  for (const DeviceId id : cluster::all_devices(cluster)) {
    const cluster::Device& known = cluster.device(id);
    if (id == device || known.kind != wanted.kind || !costs.devices.contains(known.name)) continue;
    const std::tuple<bool, bool, double> distance = {
        cost::device_key(known, "") != key, known.threads != wanted.threads,
        std::abs(std::log(work_rate(known) / work_rate(wanted)))};
    if (best && !(distance < least)) continue;
    best = id;
    least = distance;
  }
  return best;
}

void price_identical(Costs& costs, const cluster::Cluster& cluster, DeviceId device,
                     DeviceId known) {
  const cluster::Device &to = cluster.device(device), &from = cluster.device(known);
  const double ratio = work_rate(to) / work_rate(from);
  cost::ProfileCost::DeviceTimes times = costs.devices.at(from.name);
  std::vector<cost::Pace::Sample> samples = times.pace.samples();
  for (cost::Pace::Sample& sample : samples) sample.speed *= ratio;
  times.pace = cost::Pace(std::move(samples));
  if (times.most_alone) *times.most_alone *= ratio;
  if (times.is_paced)  // their tables include the pace
    for (cost::ProfileCost::SettingTimes* each : {&times.alone, &times.shared})
      each->table =
          std::make_shared<const cost::InstructionTimes>(each->table->slowed(cost::Pace(ratio)));
  costs.devices.insert_or_assign(to.name, std::move(times));
  if (const auto found = costs.by_work.find(from.name); found != costs.by_work.end()) {
    Costs::ByWork by_work = found->second;
    by_work.speed *= ratio;
    by_work.most_speed *= ratio;
    costs.by_work.insert_or_assign(to.name, std::move(by_work));
  }
  if (const auto found = costs.full_speed.find(from.name); found != costs.full_speed.end())
    costs.full_speed.insert_or_assign(to.name, found->second);
  if (const auto found = costs.jitter.find(from.name); found != costs.jitter.end())
    costs.jitter.insert_or_assign(to.name, found->second);
  costs.grounds[to.name] = {cost::Origin::kModelled,
                            fmt::format("as {} at {:.3g} times its speed", from.name, ratio)};
}

}  // namespace motley::search
