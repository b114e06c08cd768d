#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "motley/search/stages/costs/mixed_units.h"
#include "motley/search/stages/costs/stage_costs.h"

namespace motley {

/// StageCosts of small tables: seconds per sample by pool and layer, divided by the degree (of
/// several pools: all their devices' speeds add up); one rate between hosts and one inside. A
/// micro-batch takes `launch` seconds more per layer, forward and backward.
struct TableStageCosts : search::StageCosts {
  std::vector<search::DevicePool> device_pools;
  std::vector<search::StageUnit> all_units;
  std::vector<std::int64_t> batches = {1, 2, 4};
  std::int64_t least_of_wide = 1;                      ///< known for units of several devices
  std::vector<std::vector<double>> forward, backward;  ///< [pool][layer], per sample
  double launch = 0, update_seconds = 0;
  std::vector<search::LayerBytes> layer_bytes;
  double between = 0, inside = 0;            ///< bytes/s; 0: no link
  std::optional<double> between_zones = {};  ///< instead of `between`
  std::optional<std::pair<std::size_t, std::size_t>> tied_layers;
  std::vector<std::string> said;
  bool blocks = false;

  std::size_t layers() const override { return layer_bytes.size(); }
  const std::vector<search::DevicePool>& pools() const override { return device_pools; }
  const std::vector<search::StageUnit>& units() const override { return all_units; }
  const std::vector<std::int64_t>& micro_batches() const override { return batches; }
  bool knows(std::size_t unit, std::int64_t micro_batch) const override {
    const std::int64_t least = all_units[unit].degree() > 1 ? least_of_wide : 1;
    return micro_batch >= least && micro_batch <= batches.back();
  }
  std::vector<search::LayerWork> work(std::size_t unit, std::int64_t micro) const override {
    std::vector<search::LayerWork> work;
    for (std::size_t i = 0; i < layers(); ++i) {
      double ahead = 0, back = 0;  // samples per second
      for (const auto& [pool, devices] : all_units[unit].parts) {
        ahead += devices / forward[pool][i];
        back += devices / backward[pool][i];
      }
      const double once = launch + static_cast<double>(micro) / ahead;
      const double again = all_units[unit].recomputes ? once : 0;
      work.push_back({Seconds(once), Seconds(launch + static_cast<double>(micro) / back + again),
                      Seconds(update_seconds)});
    }
    return work;
  }
  std::vector<search::LayerBytes> bytes(std::size_t unit) const override {
    std::vector<search::LayerBytes> bytes = layer_bytes;
    for (search::LayerBytes& layer : bytes) {
      const int degree = all_units[unit].degree();
      layer.states.value /= degree;
      layer.gradients.value /= degree;
      layer.kept.value /= degree;
    }
    return bytes;
  }
  Bytes held(std::size_t) const override { return Bytes(0); }
  std::optional<search::Hop> hop(search::HopEnd from, search::HopEnd to, search::HopReach reach,
                                 Bytes) const override {
    const bool leaves = device_pools[from.pool].zone != device_pools[to.pool].zone;
    const double apart = leaves ? between_zones.value_or(between) : between;
    const double rate = reach == search::HopReach::kSameHost ? inside : apart;
    if (rate <= 0) return std::nullopt;
    return search::Hop{Seconds(0), BytesPerSecond(rate)};
  }
  BytesPerSecond host_rate(std::size_t) const override { return BytesPerSecond(between); }
  std::optional<std::pair<std::size_t, std::size_t>> tied() const override { return tied_layers; }
  bool messages_block() const override { return blocks; }
  const std::vector<std::string>& notes() const override { return said; }
};

/// Makes `kinds` pools of one device per host. Layers take 1 s forward and 2 s backward per sample
/// on the first, times 1, 2, 3, ... on the others; no bytes, fast links.
inline TableStageCosts even_stage_costs(std::size_t layers, std::size_t kinds, int devices) {
  TableStageCosts costs;
  for (std::size_t pool = 0; pool < kinds; ++pool) {
    const auto factor = static_cast<double>(pool + 1);
    costs.device_pools.push_back({std::string(1, static_cast<char>('a' + pool)), "", devices, 1,
                                  Bytes(1000), static_cast<int>(pool) * devices});
    costs.all_units.push_back({pool, 1, false});
    costs.forward.emplace_back(layers, factor);
    costs.backward.emplace_back(layers, 2 * factor);
  }
  costs.layer_bytes.assign(layers, {Bytes(0), Bytes(0), Bytes(0), Bytes(0), Bytes(1)});
  costs.between = costs.inside = 1e12;
  return costs;
}

inline int pick_number(std::mt19937_64& random, int least, int most) {
  return least + static_cast<int>(random() % static_cast<std::uint64_t>(most - least + 1));
}

/// Draws unequal layers for the last pool.
inline void add_random_layers(std::mt19937_64& random, std::size_t layers, TableStageCosts& costs) {
  auto& forward = costs.forward.emplace_back();
  auto& backward = costs.backward.emplace_back();
  const double slow = pick_number(random, 1, 4);
  for (std::size_t i = 0; i < layers; ++i) {
    forward.push_back(slow * pick_number(random, 1, 4));
    backward.push_back(slow * pick_number(random, 2, 8));
  }
}

/// Draws the rest, once all pools are there.
inline void add_random_rest(std::mt19937_64& random, std::size_t layers, TableStageCosts& costs) {
  const auto pick = [&](int least, int most) { return pick_number(random, least, most); };
  costs.launch = 0.5 * pick(0, 2);
  costs.update_seconds = 0.25 * pick(0, 2);
  for (std::size_t i = 0; i < layers; ++i)
    costs.layer_bytes.push_back({Bytes(pick(2, 12)), Bytes(pick(1, 4)), Bytes(pick(0, 4)),
                                 Bytes(pick(0, 2)), Bytes(pick(1, 3))});
  costs.between = pick(1, 4);
  costs.inside = 4 * costs.between;
}

/// Draws up to three pools, unequal layers, tight memory, degrees 1 and 2 where a host has two.
inline TableStageCosts random_stage_costs(std::mt19937_64& random, std::size_t layers,
                                          int most_devices) {
  const auto pick = [&](int least, int most) { return pick_number(random, least, most); };
  TableStageCosts costs;
  int left = most_devices, host = 0;
  for (std::size_t pool = 0; pool < 3 && left > 0; ++pool) {
    const int devices = pick(1, std::min(left, 3)), per_host = pick(1, 2);
    left -= devices;
    costs.device_pools.push_back({std::string(1, static_cast<char>('a' + pool)), "", devices,
                                  per_host, Bytes(pick(20, 120)), host});
    host += costs.device_pools.back().hosts();
    costs.all_units.push_back({pool, 1, false});
    if (per_host == 2 && devices >= 2) costs.all_units.push_back({pool, 2, false});
    add_random_layers(random, layers, costs);
  }
  add_random_rest(random, layers, costs);
  return costs;
}

/// Draws the same for one or two hosts with one device, or two where the limit allows, of each of
/// two or three pools, and units of several of these.
inline TableStageCosts random_mixed_costs(std::mt19937_64& random, std::size_t layers,
                                          int most_devices) {
  TableStageCosts costs;
  const int kinds = pick_number(random, 2, std::min(3, most_devices));
  const int hosts = pick_number(random, 1, std::min(2, most_devices / kinds));
  const int per_host = pick_number(random, 1, std::min(2, most_devices / (kinds * hosts)));
  std::vector<double> speeds;
  for (int pool = 0; pool < kinds; ++pool) {
    costs.device_pools.push_back({std::string(1, static_cast<char>('a' + pool)), "",
                                  hosts * per_host, per_host, Bytes(pick_number(random, 20, 120)),
                                  0});
    costs.all_units.push_back({static_cast<std::size_t>(pool), 1, false});
    add_random_layers(random, layers, costs);
    speeds.push_back(1 / costs.forward.back().front());
  }
  for (search::StageUnit& unit : search::find_mixed_units(costs.device_pools, speeds))
    costs.all_units.push_back(std::move(unit));
  add_random_rest(random, layers, costs);
  return costs;
}

}  // namespace motley
