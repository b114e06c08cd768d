#include "motley/search/spmd/device_kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace motley::search {

double DeviceKind::seconds(Estimate estimate, std::string_view name, DType dtype,
                           const cost::OperatorWork& work) const {
  const auto& least = estimate == Estimate::kLeast ? costs.least_shared : costs.least_alone;
  if (estimate != Estimate::kUsual && least)
    return least->answer(name, dtype, work).seconds.value / costs.most_speed;
  return costs.times->answer(name, dtype, work).seconds.value / costs.speed;
}

Result<DeviceKinds> DeviceKinds::find(const cluster::Cluster& cluster, const Costs& costs,
                                      const std::vector<DeviceId>& devices) {
  DeviceKinds kinds;
  kinds.of_device_.assign(cluster.devices.size(), -1);
  for (const DeviceId id : devices) {
    const std::string& name = cluster.device(id).name;
    const auto known = costs.by_work.find(name);
    if (known == costs.by_work.end())
      return usage_error("search.missing-profile",
                         fmt::format("too little was measured on {} to say what parts of operators "
                                     "take; run `motley profile` with this model and cluster",
                                     name));
    const Costs::ByWork& own = known->second;
    const auto is_identical = [&](const DeviceKind& kind) {
      const auto &a = costs.devices.at(name),
                 &b = costs.devices.at(cluster.device(kind.devices[0]).name);
      return kind.costs.times == own.times && kind.costs.speed == own.speed &&
             a.alone.source == b.alone.source && a.shared.source == b.shared.source &&
             a.pace == b.pace && a.interference == b.interference;
    };
    const auto same = std::find_if(kinds.all_.begin(), kinds.all_.end(), is_identical);
    kinds.of_device_[id.index()] = static_cast<int>(same - kinds.all_.begin());
    if (same == kinds.all_.end())
      kinds.all_.push_back({{id}, own});
    else
      same->devices.push_back(id);
  }
  return kinds;
}

std::vector<std::size_t> DeviceClasses::ranks() const {
  std::vector<std::size_t> ranks;
  for (const DeviceClass& each : all) ranks.push_back(static_cast<std::size_t>(each.rank));
  return ranks;
}

DeviceClasses DeviceKinds::classes(const std::vector<DeviceId>& devices,
                                   const std::vector<double>& shares) const {
  DeviceClasses found;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const int kind = of(devices[rank]);
    const auto same =
        std::find_if(found.all.begin(), found.all.end(), [&](const DeviceClass& each) {
          return each.kind == kind && shares[static_cast<std::size_t>(each.rank)] == shares[rank];
        });
    found.of_rank.push_back(static_cast<std::size_t>(same - found.all.begin()));
    if (same == found.all.end())
      found.all.push_back({kind, static_cast<int>(rank), 1});
    else
      ++same->count;
  }
  return found;
}

}  // namespace motley::search
