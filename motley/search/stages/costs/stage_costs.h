#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "motley/base/units.h"

namespace motley::search {

/// Devices of one kind in one place, in identical hosts; the last host may have fewer.
struct DevicePool {
  std::string kind;
  std::string zone;  ///< its hosts; "" if no other pool has the kind
  int devices = 0;
  int per_host = 1;
  Bytes memory;  ///< per device
  /// Its hosts are first_host, first_host + 1, ... of the cluster, maybe shared with other pools.
  int first_host = 0;
  int hosts() const { return (devices + per_host - 1) / per_host; }
  bool shares_hosts(const DevicePool& other) const {
    return first_host < other.first_host + other.hosts() && other.first_host < first_host + hosts();
  }
  bool operator==(const DevicePool&) const = default;
};

struct UnitPart {
  std::size_t pool = 0;
  int devices = 1;
  bool operator==(const UnitPart&) const = default;
};

/// Devices of one host that compute a stage together, each a part of every operator. They are
/// usually of one pool; if of several, these pools share hosts, each of which has all of its
/// devices.
struct StageUnit {
  StageUnit(std::size_t of_pool, int devices, bool does_again = false)
      : parts{{of_pool, devices}}, recomputes(does_again) {}
  explicit StageUnit(std::vector<UnitPart> of_pools) : parts(std::move(of_pools)) {}

  std::vector<UnitPart> parts;  ///< one or more, with increasing pools
  /// Keeps only its layers' inputs and repeats each forward pass before its backward pass.
  bool recomputes = false;

  std::size_t pool() const { return parts.front().pool; }  ///< of its first devices
  int degree() const {                                     ///< devices
    int sum = 0;
    for (const UnitPart& part : parts) sum += part.devices;
    return sum;
  }
  bool is_mixed() const { return parts.size() > 1; }
  bool has(std::size_t pool) const {
    return std::any_of(parts.begin(), parts.end(),
                       [pool](const UnitPart& part) { return part.pool == pool; });
  }
  bool is_like(const StageUnit& other) const {
    return std::equal(parts.begin(), parts.end(), other.parts.begin(), other.parts.end(),
                      [](const UnitPart& a, const UnitPart& b) { return a.pool == b.pool; });
  }
  /// Returns their total price; `prices`: of a device, by pool.
  double cost(const std::vector<double>& prices) const {
    double sum = 0;
    for (const UnitPart& part : parts) sum += prices[part.pool] * part.devices;
    return sum;
  }
  bool operator==(const StageUnit&) const = default;
};

/// One layer on a unit: a micro-batch's forward and backward pass, and the layer's update.
struct LayerWork {
  Seconds forward, backward, update;
};

/// A layer's bytes on each member (if these differ: relative to StageCosts::memory), and output.
struct LayerBytes {
  Bytes states;     ///< weights, gradients, optimizer state, buffers of this size
  Bytes gradients;  ///< exchanged by replicas
  Bytes kept;       ///< per sample, from its forward to its backward pass
  Bytes workspace;  ///< per sample, during the layer's backward pass
  Bytes output;     ///< per sample, over all members: the message to the next stage
};

struct HopEnd {
  std::size_t pool = 0;
  int devices = 1;
};
enum class HopReach { kSameHost, kOtherHost };

/// A message between devices without other traffic.
struct Hop {
  Seconds delay;        ///< before the first and after the last byte
  BytesPerSecond rate;  ///< of all members together; > 0
};

/// The costs of plans of stages: a chain of layers, devices that may compute ranges of it, and the
/// network between them. Const and deterministic; used by one thread at a time. search/stages plans
/// over this interface alone; layer_stage_costs.h implements it for a layer profile.
///
/// Requirements of the planner's bound: times and bytes are >= 0, a layer's forward plus backward
/// is above 0, no time falls as the micro-batch grows, and a hop between hosts is not faster than
/// host_rate() of either end.
class StageCosts {
 public:
  virtual ~StageCosts() = default;
  virtual std::size_t layers() const = 0;
  virtual const std::vector<DevicePool>& pools() const = 0;
  /// Returns the units in the order of their pools, units of equal pools together; then those of
  /// several pools, which share their hosts.
  virtual const std::vector<StageUnit>& units() const = 0;
  /// Returns the micro-batch sizes that are tried, ascending; a unit may not know all.
  virtual const std::vector<std::int64_t>& micro_batches() const = 0;
  /// Is the time of a micro-batch of this many samples known on the unit?
  virtual bool knows(std::size_t unit, std::int64_t micro_batch) const = 0;
  /// Returns the work of all layers; requires knows().
  virtual std::vector<LayerWork> work(std::size_t unit, std::int64_t micro_batch) const = 0;
  virtual std::vector<LayerBytes> bytes(std::size_t unit) const = 0;
  /// Returns the bytes that each member holds for any layers.
  virtual Bytes held(std::size_t unit) const = 0;
  /// Returns a member's memory; the least if they differ, relative to which bytes are given.
  virtual Bytes memory(std::size_t unit) const {
    Bytes least = pools()[units()[unit].pool()].memory;
    for (const UnitPart& part : units()[unit].parts)
      least = std::min(least, pools()[part.pool].memory);
    return least;
  }
  /// Returns absent without a link or a known rate.
  virtual std::optional<Hop> hop(HopEnd from, HopEnd to, HopReach reach, Bytes bytes) const = 0;
  /// Returns the largest rate of a pool's host to other hosts, and from them.
  virtual BytesPerSecond host_rate(std::size_t pool) const = 0;
  /// Returns two layers with shared weights, if any: held once within a stage, otherwise their
  /// gradients are summed between the two stages.
  virtual std::optional<std::pair<std::size_t, std::size_t>> tied() const = 0;
  /// Does a message stop both stages until it has passed, as blocking sends on the compute stream
  /// do? Otherwise it overlaps with compute.
  virtual bool messages_block() const { return false; }
  /// Returns notes on what was requested but left out, a sentence each.
  virtual const std::vector<std::string>& notes() const = 0;
};

}  // namespace motley::search
