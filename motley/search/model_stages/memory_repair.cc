#include "motley/search/model_stages/memory_repair.h"

#include <algorithm>
#include <cmath>

namespace motley::search {
namespace {

/// Part of a device's memory below which what is left is not used: a layer's activations are more.
constexpr double kMuchLeft = 0.01;
/// Takes a little more than what lacks from a pool's memory, as the next plan differs.
constexpr double kMargin = 0.98;

}  // namespace

Lacking find_lacking(const plan::Problem& problem, const plan::Plan& plan,
                     const plan::Price& price) {
  Lacking lacking;
  const std::vector<plan::Member> members = plan::members(plan);
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    const auto memory = problem.cluster->device(members[rank].device).room();
    if (memory && price.peaks[rank] > *memory)
      lacking[members[rank].device] = price.peaks[rank] - *memory;
  }
  return lacking;
}

bool MemoryRepair::save_by_layers(const PricedStagePlan& found, Lacking& lacking,
                                  Again& again) const {
  return for_each_seat(costs_, found, again, [&](StageSeat& at) {
    const std::optional<Bytes> memory = memory_of(at.stage);
    const double factor = beyond(at), all = factor * held(at);
    if (!memory || all <= static_cast<double>(memory->value)) return true;
    const double missing = all - static_cast<double>(memory->value);
    const std::vector<DeviceId> devices = costs_.model_units().devices(at.stage);
    const std::vector<double> scales = costs_.model_units().scales(at.stage.unit);
    for (std::size_t i = 0; i < devices.size(); ++i)
      lacking[devices[i]] = Bytes(std::llround(missing / scales[i]));
    return save_memory(costs_, Bytes(std::llround(missing / factor)), at.layers);
  });
}

bool MemoryRepair::save(const PricedStagePlan& found, const Lacking& lacking, Again& again) const {
  return for_each_seat(costs_, found, again, [&](StageSeat& at) {
    double most = 0;
    const std::vector<DeviceId> devices = costs_.model_units().devices(at.stage);
    const std::vector<double> scales = costs_.model_units().scales(at.stage.unit);
    for (std::size_t i = 0; i < devices.size(); ++i)
      if (const auto lacks = lacking.find(devices[i]); lacks != lacking.end())
        most = std::max(most, scales[i] * static_cast<double>(lacks->second.value));
    return most == 0 || save_memory(costs_, Bytes(std::llround(most)), at.layers);
  });
}

bool MemoryRepair::use_left(const PricedStagePlan& found, const plan::Price& price,
                            Again& again) const {
  std::size_t rank = 0;
  bool is_less = false;
  for_each_seat(costs_, found, again, [&](StageSeat& at) {
    const std::optional<Bytes> memory = memory_of(at.stage);
    const double left =
        memory ? static_cast<double>(memory->value) - peak(at.stage, price, rank) : 0;
    rank += costs_.model_units().devices(at.stage).size();
    if (!memory || left < kMuchLeft * static_cast<double>(memory->value)) return true;
    is_less = use_memory(costs_, Bytes(std::llround(left / beyond(at))), at.layers) || is_less;
    return true;
  });
  return is_less;
}

void MemoryRepair::learn(const PricedStagePlan& found, const plan::Price& price, Again& again) {
  std::size_t rank = 0;
  for_each_seat(costs_, found, again, [&](const StageSeat& at) {
    const double most = peak(at.stage, price, rank);
    rank += costs_.model_units().devices(at.stage).size();
    const Beyond seen{std::max(1.0, most / held(at)), std::max(0.0, most - held(at))};
    const auto [known, is_new] = beyond_.try_emplace(pools_of(at.stage), seen);
    known->second.part = std::min(known->second.part, seen.part);
    known->second.bytes = std::min(known->second.bytes, seen.bytes);
    return true;
  });
}

void MemoryRepair::note(const StagePlan& plan, const Lacking& lacking, bool is_worth) {
  for (const auto& [device, bytes] : lacking) {
    const auto memory = static_cast<double>(problem_.cluster->device(device).room()->value);
    const double part = memory / (memory + static_cast<double>(bytes.value)) * kMargin;
    const auto [known, is_new] = noted_.try_emplace(pool_of(plan, device), part);
    known->second = std::min(known->second, part);
  }
  is_worth_ = is_worth_ || is_worth;
}

bool MemoryRepair::take_noted(bool has_plan) {
  if (noted_.empty() || (has_plan && !is_worth_)) return false;
  for (const auto& [pool, part] : noted_) costs_.take_memory(pool, part);
  return true;
}

void MemoryRepair::forget_noted() {
  noted_.clear();
  is_worth_ = false;
}

double MemoryRepair::held(const StageSeat& at) const {
  return static_cast<double>(held_by(costs_, at.layers).value);
}

double MemoryRepair::beyond(const StageSeat& at) const {
  const auto known = beyond_.find(pools_of(at.stage));
  if (known == beyond_.end()) return 1;
  return std::min(known->second.part, 1 + known->second.bytes / held(at));
}

/// What its fullest device holds, beside the smallest memory.
double MemoryRepair::peak(const PlannedStage& stage, const plan::Price& price,
                          std::size_t first_rank) const {
  double most = 0;
  const std::vector<double> scales = costs_.model_units().scales(stage.unit);
  for (std::size_t i = 0; i < scales.size(); ++i)
    most = std::max(most, scales[i] * static_cast<double>(price.peaks[first_rank + i].value));
  return most;
}

/// The smallest of its devices', which is what bytes of a mixed unit are relative to.
std::optional<Bytes> MemoryRepair::memory_of(const PlannedStage& stage) const {
  std::optional<Bytes> least;
  for (const DeviceId device : costs_.model_units().devices(stage))
    if (const auto memory = problem_.cluster->device(device).room())
      least = std::min(least.value_or(*memory), *memory);
  return least;
}

std::vector<std::size_t> MemoryRepair::pools_of(const PlannedStage& stage) const {
  std::vector<std::size_t> pools;
  for (const UnitPart& part : costs_.units()[stage.unit].parts) pools.push_back(part.pool);
  return pools;
}

std::size_t MemoryRepair::pool_of(const StagePlan& plan, DeviceId device) const {
  for (const StageReplica& replica : plan.replicas)
    for (const PlannedStage& stage : replica.stages) {
      const std::vector<DeviceId> devices = costs_.model_units().devices(stage);
      auto at = std::find(devices.begin(), devices.end(), device) - devices.begin();
      for (const UnitPart& part : costs_.units()[stage.unit].parts) {
        if (at < part.devices) return part.pool;
        at -= part.devices;
      }
    }
  return 0;
}

}  // namespace motley::search
