#include "motley/search/stages/stage_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

namespace motley::search {
namespace {

tl::unexpected<Error> stage_fault(const std::string& message) {
  return usage_error("search.stages", message);
}

/// By pool and device: the replica and device slot (StageReplica::seats) that use it.
using Takers = std::vector<std::vector<std::optional<std::pair<std::size_t, std::size_t>>>>;

Result<void> verify_part(const PlannedStage& stage, std::size_t number, const StageCosts& costs,
                         Takers& taken, const std::pair<std::size_t, std::size_t>& taker,
                         const std::string& where) {
  const auto& [pool_index, devices] = costs.units()[stage.unit].parts[number];
  const DevicePool& pool = costs.pools()[pool_index];
  const int slot = stage.slot_of(number), first = stage.host * pool.per_host + slot;
  if (stage.host < 0 || slot < 0 || slot + devices > pool.per_host ||
      first + devices > pool.devices)
    return stage_fault(fmt::format("{}: host {}, devices {} to {} of {}: there are {} of {} a host",
                                   where, stage.host, slot, slot + devices - 1, pool.kind,
                                   pool.devices, pool.per_host));
  for (int i = first; i < first + devices; ++i) {
    auto& device = taken[pool_index][static_cast<std::size_t>(i)];
    if (device && *device != taker)
      return stage_fault(fmt::format(
          "{}: device {} of {} is in {}", where, i, pool.kind,
          device->first == taker.first
              ? std::string(
                    "another stage with other devices: stages of a replica share all or none")
              : fmt::format("replica {}, too", device->first)));
    device = taker;
  }
  return {};
}

/// Checks that units exist, and that stages of one device slot name the same devices.
Result<void> verify_seats(const StageReplica& replica, const StageCosts& costs,
                          const std::string& where) {
  for (std::size_t s = 0; s < replica.stages.size(); ++s)
    if (replica.stages[s].unit >= costs.units().size())
      return stage_fault(fmt::format("{}, stage {}: no such unit", where, s));
  if (!is_interleaved(replica)) return {};
  if (replica.seats.size() != replica.stages.size())
    return stage_fault(fmt::format("{}: seats of {} stages, wanted {}", where, replica.seats.size(),
                                   replica.stages.size()));
  const auto devices = [&](std::size_t s) {
    const PlannedStage& stage = replica.stages[s];
    const StageUnit& unit = costs.units()[stage.unit];
    return std::tuple(unit.parts, stage.host, stage.slot, stage.more_slots);
  };
  std::vector<std::size_t> first;  // by slot: its first stage
  for (std::size_t s = 0; s < replica.seats.size(); ++s) {
    const std::size_t seat = replica.seats[s];
    if (seat > first.size())
      return stage_fault(
          fmt::format("{}, stage {}: seat {}, wanted at most {}", where, s, seat, first.size()));
    if (seat == first.size()) first.push_back(s);
    if (devices(first[seat]) != devices(s))
      return stage_fault(fmt::format("{}, stage {}: other devices than stage {}, whose seat it has",
                                     where, s, first[seat]));
  }
  return {};
}

/// Free devices of a pool's hosts; units go into the first host with room.
class FreeDevices {
 public:
  explicit FreeDevices(const DevicePool& pool) : pool_(&pool) {
    for (int left = pool.devices; left > 0; left -= pool.per_host)
      used_.push_back(std::max(0, pool.per_host - left));
  }
  std::size_t hosts() const { return used_.size(); }
  std::size_t first() {
    while (first_ < used_.size() && used_[first_] == pool_->per_host) ++first_;
    return first_;
  }
  bool has_room(std::size_t host, int devices) const {
    return used_[host] + devices <= pool_->per_host;
  }
  int take(std::size_t host, int devices) {
    // A last host with fewer devices has its first ones.
    const int missing =
        host + 1 == used_.size() ? pool_->hosts() * pool_->per_host - pool_->devices : 0;
    return std::exchange(used_[host], used_[host] + devices) - missing;
  }

 private:
  const DevicePool* pool_;
  std::vector<int> used_;
  std::size_t first_ = 0;
};

/// Places a stage in the first host with room. Wider units come first, so hosts fill in order
/// except for units that no longer fit. `free`: by pool.
bool place_stage(PlannedStage& stage, const StageUnit& unit, std::vector<FreeDevices>& free) {
  const std::size_t hosts = free[unit.pool()].hosts();
  for (std::size_t host = free[unit.pool()].first(); host < hosts; ++host) {
    if (!std::all_of(unit.parts.begin(), unit.parts.end(), [&](const UnitPart& part) {
          return free[part.pool].has_room(host, part.devices);
        }))
      continue;
    stage.host = static_cast<int>(host);
    stage.more_slots.clear();
    for (const UnitPart& part : unit.parts) {
      const int slot = free[part.pool].take(host, part.devices);
      if (part.pool == unit.pool())
        stage.slot = slot;
      else
        stage.more_slots.push_back(slot);
    }
    return true;
  }
  return false;
}

}  // namespace

bool has_full_ends(const StageReplica& replica) {
  const std::int64_t full = replica.samples / replica.micro_batch;
  const bool divides = replica.samples % replica.micro_batch == 0;
  return full >= 1 && (divides || full >= 2 || replica.stages.size() == 1);
}

std::int64_t count_passes(const StageReplica& replica) {
  return (replica.samples / replica.micro_batch + 1) *
         static_cast<std::int64_t>(2 * replica.stages.size());
}

bool is_interleaved(const StagePlan& plan) {
  return std::any_of(plan.replicas.begin(), plan.replicas.end(),
                     [](const StageReplica& replica) { return is_interleaved(replica); });
}

std::vector<std::vector<std::size_t>> stages_by_seat(const StageReplica& replica) {
  std::vector<std::vector<std::size_t>> stages;
  for (std::size_t s = 0; s < replica.stages.size(); ++s) {
    const std::size_t seat = replica.seat_of(s);
    if (seat >= stages.size()) stages.resize(seat + 1);
    stages[seat].push_back(s);
  }
  return stages;
}

std::vector<std::int64_t> micro_batch_sizes(const StageReplica& replica) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(replica.samples / replica.micro_batch),
                                  replica.micro_batch);
  const std::int64_t rest = replica.samples % replica.micro_batch;
  if (rest > 0) sizes.insert(sizes.size() < 2 ? sizes.end() : sizes.end() - 1, rest);
  return sizes;
}

std::optional<std::int64_t> find_unknown_size(const StageReplica& replica, std::size_t unit,
                                              const StageCosts& costs) {
  for (const std::int64_t size : {replica.micro_batch, replica.samples % replica.micro_batch})
    if (size > 0 && size <= replica.samples && !costs.knows(unit, size)) return size;
  return std::nullopt;
}

std::string kinds_text(const StageUnit& unit, const StageCosts& costs) {
  std::string text;
  for (const UnitPart& part : unit.parts)
    text += (text.empty() ? "" : " + ") + costs.pools()[part.pool].kind;
  return text;
}

std::vector<int> used_devices(const StagePlan& plan, const StageCosts& costs) {
  std::vector<int> used(costs.pools().size());
  for (const StageReplica& replica : plan.replicas) {
    for (const std::vector<std::size_t>& stages : stages_by_seat(replica)) {
      for (const UnitPart& part : costs.units()[replica.stages[stages.front()].unit].parts)
        used[part.pool] += part.devices;
    }
  }
  return used;
}

Result<void> verify_stage_plan(const StagePlan& plan, const StageCosts& costs) {
  if (plan.replicas.empty()) return stage_fault("no replica");
  Takers taken;
  for (const DevicePool& pool : costs.pools())
    taken.emplace_back(static_cast<std::size_t>(pool.devices));
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    const StageReplica& replica = plan.replicas[r];
    if (replica.micro_batch < 1 || replica.samples < 1)
      return stage_fault(fmt::format("replica {}: {} samples in micro-batches of {}", r,
                                     replica.samples, replica.micro_batch));
    std::size_t next = 0;
    MOTLEY_RETURN_IF_ERROR(verify_seats(replica, costs, fmt::format("replica {}", r)));
    for (std::size_t s = 0; s < replica.stages.size(); ++s) {
      const PlannedStage& stage = replica.stages[s];
      const std::string where = fmt::format("replica {}, stage {}", r, s);
      if (stage.first != next || stage.end <= stage.first)
        return stage_fault(fmt::format("{}: layers {} to {}, wanted a start at {}", where,
                                       stage.first, stage.end, next));
      const StageUnit& unit = costs.units()[stage.unit];
      for (std::size_t part = 0; part < unit.parts.size(); ++part) {
        MOTLEY_RETURN_IF_ERROR(
            verify_part(stage, part, costs, taken, {r, replica.seat_of(s)}, where));
      }
      if (const auto size = find_unknown_size(replica, stage.unit, costs))
        return stage_fault(fmt::format("{}: nobody knows what {} samples take on {} at degree {}",
                                       where, *size, kinds_text(unit, costs), unit.degree()));
      next = stage.end;
    }
    if (next != costs.layers())
      return stage_fault(
          fmt::format("replica {}: stages end at layer {}, wanted {}", r, next, costs.layers()));
  }
  return {};
}

bool place_stages(StagePlan& plan, const StageCosts& costs, StagePlacing placing) {
  std::vector<FreeDevices> free;
  for (const DevicePool& pool : costs.pools()) free.emplace_back(pool);
  // Wide units first: they may need whole hosts; then (by stage) equal ranges of layers.
  std::vector<std::tuple<int, std::size_t, std::size_t, std::size_t, std::size_t>> order;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r)
    for (std::size_t s = 0; s < plan.replicas[r].stages.size(); ++s) {
      const PlannedStage& stage = plan.replicas[r].stages[s];
      const bool by_stage = placing != StagePlacing::kByReplica;
      const int degree = costs.units()[stage.unit].degree();
      order.emplace_back(placing == StagePlacing::kInOrder ? 0 : -degree,
                         by_stage ? stage.first : 0, by_stage ? stage.end : 0, r, s);
    }
  std::sort(order.begin(), order.end());
  for (const auto& [width, first, end, r, s] : order) {
    PlannedStage& stage = plan.replicas[r].stages[s];
    if (!place_stage(stage, costs.units()[stage.unit], free)) return false;
  }
  return true;
}

}  // namespace motley::search
