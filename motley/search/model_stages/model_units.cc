#include "motley/search/model_stages/model_units.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "motley/search/model_stages/stage_ways.h"

namespace motley::search {
namespace {

/// For which units of several devices find their ways: samples each, and micro-batches of a step.
constexpr std::int64_t kSamplesEach = 4, kPasses = 8;

}  // namespace

ModelUnits::ModelUnits(ClusterPools pools, const plan::Problem& problem, const LayeredGraph& graph)
    : problem_(problem), graph_(graph), pools_(std::move(pools)) {
  for (const DevicePool& pool : pools_.pools) memories_.push_back(pool.memory);
  const std::int64_t most = std::min(problem.max_samples, problem.global_batch);
  for (std::int64_t batch = std::max<std::int64_t>(1, problem.min_samples); batch <= most;
       batch *= 2)
    micro_batches_.push_back(batch);
}

void ModelUnits::find(const PlannerInputs& inputs, UnitKinds kinds) {
  add_identical(inputs);
  offered_ = all_;
  if (kinds != UnitKinds::kIdentical) add_mixed(inputs);
  if (kinds == UnitKinds::kSeveral) offered_ = all_;
}

bool ModelUnits::offer_mixed() {
  if (offered_.size() == all_.size()) return false;
  offered_ = all_;
  return true;
}

std::vector<std::int64_t> ModelUnits::simulated(std::size_t unit) const {
  const int degree = all_[unit].degree();
  if (degree == 1) return micro_batches_;
  std::vector<std::int64_t> batches;
  for (const std::int64_t batch : micro_batches_)
    if (batch >= degree && (batches.empty() || batch == micro_batches_.back() ||
                            (batches.size() == 1 && batch >= 4 * batches.front())))
      batches.push_back(batch);
  return batches;
}

/// For units of up to so many devices. None where nobody can say how operators are split: then
/// there are stages of one device.
std::unique_ptr<StageWays> ModelUnits::find_ways(const PlannerInputs& inputs, int widest) const {
  if (widest < 2 || problem_.batch_norm != plan::BatchNormMode::kGlobal || micro_batches_.empty())
    return nullptr;
  auto found = StageWays::make(
      inputs, problem_, std::min(kSamplesEach * widest, micro_batches_.back()), graph_.depths());
  return found ? *std::move(found) : nullptr;
}

/// Of each pool one device, and as many as there are in a host by powers of two.
void ModelUnits::add_identical(const PlannerInputs& inputs) {
  int widest = 1;
  for (const DevicePool& pool : pools_.pools) widest = std::max(widest, pool.per_host);
  const std::unique_ptr<StageWays> ways = find_ways(inputs, widest);
  for (std::size_t pool = 0; pool < pools_.pools.size(); ++pool) {
    const std::vector<DeviceId>& devices = pools_.devices[pool];
    add({pool, 1}, plan::Region{{devices.front()}, {1.0}});
    const int per_host = pools_.pools[pool].per_host;
    for (int degree = 2; ways && degree <= per_host;
         degree = degree < per_host ? std::min(2 * degree, per_host) : per_host + 1)
      for (const plan::Region& region :
           ways->find({devices.begin(), devices.begin() + degree},
                      std::vector<double>(static_cast<std::size_t>(degree), 1.0), kPasses))
        add({pool, degree}, region);
  }
}

void ModelUnits::add_mixed(const PlannerInputs& inputs) {
  std::map<int, int> of_host;  // devices, where there are several pools
  for (const DevicePool& pool : pools_.pools) of_host[pool.first_host] += pool.per_host;
  int widest = 1;
  for (const DevicePool& pool : pools_.pools)
    if (of_host[pool.first_host] > pool.per_host)
      widest = std::max(widest, of_host[pool.first_host]);
  const std::unique_ptr<StageWays> ways = find_ways(inputs, widest);
  if (!ways) return;
  std::vector<double> speeds;
  for (const std::vector<DeviceId>& devices : pools_.devices)
    speeds.push_back(1 / ways->whole_step(devices.front()));
  for (const StageUnit& unit : find_mixed_units(pools_.pools, speeds)) {
    std::vector<DeviceId> devices;
    for (const UnitPart& part : unit.parts)
      devices.insert(devices.end(), pools_.devices[part.pool].begin(),
                     pools_.devices[part.pool].begin() + part.devices);
    for (const plan::Region& region : ways->find(devices, ways->find_shares(devices), kPasses))
      add(unit, region);
  }
}

void ModelUnits::add(StageUnit unit, plan::Region ways) {
  double held = 0;
  for (const UnitPart& part : unit.parts) {
    const cluster::Device& device = problem_.cluster->device(pools_.devices[part.pool].front());
    held = std::max(held, scale(unit, part.pool) *
                              static_cast<double>(cost::with_framework(device, Bytes(0)).value));
  }
  held_.emplace_back(std::llround(held));
  all_.push_back(std::move(unit));
  ways_.push_back(std::move(ways));
  if (gathers(ways_.size() - 1) == GatheredParameters::kForEachPass) held_.back() += find_copies();
}

/// Whole copies of a layer's parameters, and of the next one's on their way.
Bytes ModelUnits::find_copies() const {
  const std::vector<double> copies = find_layer_parameters(graph_.whole(), graph_.chain()).bytes;
  double most = copies.back();
  for (std::size_t l = 0; l + 1 < copies.size(); ++l)
    most = std::max(most, copies[l] + copies[l + 1]);
  return Bytes(std::llround(most));
}

GatheredParameters ModelUnits::gathers(std::size_t unit) const {
  const std::vector<plan::KeptParameter>& kept = ways_[unit].parameters;
  const bool is_again = std::any_of(kept.begin(), kept.end(), [](const plan::KeptParameter& each) {
    return each.is_gathered_again;
  });
  return is_again ? GatheredParameters::kForEachPass : GatheredParameters::kOnce;
}

std::vector<std::size_t> ModelUnits::first_ranks(std::size_t unit) const {
  std::vector<std::size_t> ranks;
  std::size_t next = 0;
  for (const UnitPart& part : all_[unit].parts)
    ranks.push_back(std::exchange(next, next + static_cast<std::size_t>(part.devices)));
  return ranks;
}

std::vector<DeviceId> ModelUnits::devices(const PlannedStage& stage) const {
  std::vector<DeviceId> devices;
  const std::vector<UnitPart>& parts = all_[stage.unit].parts;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    const std::size_t pool = parts[part].pool;
    const auto first = pools_.devices[pool].begin() + stage.host * pools_.pools[pool].per_host +
                       stage.slot_of(part);
    devices.insert(devices.end(), first, first + parts[part].devices);
  }
  return devices;
}

Bytes ModelUnits::memory(std::size_t unit) const {
  double least = std::numeric_limits<double>::infinity();
  for (const UnitPart& part : all_[unit].parts)
    least = std::min(least, scale(all_[unit], part.pool) *
                                static_cast<double>(pools_.pools[part.pool].memory.value));
  return Bytes(std::llround(least));
}

double ModelUnits::scale(const StageUnit& unit, std::size_t pool) const {
  Bytes least = memories_[pool];
  for (const UnitPart& part : unit.parts) least = std::min(least, memories_[part.pool]);
  return static_cast<double>(least.value) / static_cast<double>(memories_[pool].value);
}

std::vector<double> ModelUnits::scales(std::size_t unit) const {
  std::vector<double> scales;
  for (const UnitPart& part : all_[unit].parts)
    scales.insert(scales.end(), static_cast<std::size_t>(part.devices),
                  scale(all_[unit], part.pool));
  return scales;
}

void ModelUnits::take_memory(std::size_t pool, double part) {
  Bytes& memory = pools_.pools[pool].memory;
  memory = Bytes(static_cast<std::int64_t>(static_cast<double>(memory.value) * part));
}

void ModelUnits::restore_memory() {
  for (std::size_t pool = 0; pool < memories_.size(); ++pool)
    pools_.pools[pool].memory = memories_[pool];
}

}  // namespace motley::search
