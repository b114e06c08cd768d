#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "motley/base/units.h"

namespace motley::search {

/// Devices of one kind in one place, in hosts that are identical; the last host may have fewer.
struct DevicePool {
  std::string kind;
  std::string zone;  ///< its hosts; "" where no others have devices of the kind
  int devices = 0;
  int per_host = 1;
  Bytes memory;  ///< of each device
  /// Its hosts are first_host, first_host + 1, ... of the cluster; pools with other kinds of device
  /// may be in the same ones.
  int first_host = 0;
  int hosts() const { return (devices + per_host - 1) / per_host; }
  bool shares_hosts(const DevicePool& other) const {
    return first_host < other.first_host + other.hosts() && other.first_host < first_host + hosts();
  }
  bool operator==(const DevicePool&) const = default;
};

/// So many devices of a host of one pool.
struct UnitPart {
  std::size_t pool = 0;
  int devices = 1;
  bool operator==(const UnitPart&) const = default;
};

/// Who can compute a stage together: devices of one host, each a part of every operator. Mostly
/// they are of one pool; of several, all these pools lie in the same hosts, each of which has all
/// of its devices.
struct StageUnit {
  StageUnit(std::size_t of_pool, int devices, bool does_again = false)
      : parts{{of_pool, devices}}, recomputes(does_again) {}
  explicit StageUnit(std::vector<UnitPart> of_pools) : parts(std::move(of_pools)) {}

  std::vector<UnitPart> parts;  ///< one or more, by rising pool, each of another
  /// Keeps the inputs of its layers only and runs each forward once more before its backward.
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
  /// Are its devices of the same pools?
  bool is_like(const StageUnit& other) const {
    return std::equal(parts.begin(), parts.end(), other.parts.begin(), other.parts.end(),
                      [](const UnitPart& a, const UnitPart& b) { return a.pool == b.pool; });
  }
  /// What they cost together, at prices of a device by pool.
  double cost(const std::vector<double>& prices) const {
    double sum = 0;
    for (const UnitPart& part : parts) sum += prices[part.pool] * part.devices;
    return sum;
  }
  bool operator==(const StageUnit&) const = default;
};

/// One layer on a unit: one micro-batch forward, the same backward, and the layer's update.
struct LayerWork {
  Seconds forward, backward, update;
};

/// What one layer holds on each member of a unit (of unlike ones: beside StageCosts::memory), and
/// what it gives to the next.
struct LayerBytes {
  Bytes states;     ///< weights, gradients, optimizer state, buffers as large as these
  Bytes gradients;  ///< what replicas exchange
  Bytes kept;       ///< a sample: from its forward to its backward
  Bytes workspace;  ///< a sample: while the layer is in backward
  Bytes output;     ///< a sample, all members together: the message to the next stage
};

/// Devices of one host that send, or receive, together.
struct HopEnd {
  std::size_t pool = 0;
  int devices = 1;
};
enum class HopReach { kSameHost, kOtherHost };

/// A message on its way from devices to devices, when nothing else is under way.
struct Hop {
  Seconds delay;        ///< before the first byte and after the last one
  BytesPerSecond rate;  ///< of all members together; > 0
};

/// What a plan of stages is priced by: a chain of layers, devices that may compute stretches of it,
/// and what lies between them. Const, deterministic; an implementation may be used by one thread at
/// a time. search/stages plans over this interface alone; layer_stage_costs.h implements it for a
/// layer profile.
///
/// Requirements, on which the planner's bound rests: times and bytes are >= 0, a layer's forward
/// plus backward is above 0, no time falls as the micro-batch grows; a hop between hosts is not
/// faster than host_rate() of either end.
class StageCosts {
 public:
  virtual ~StageCosts() = default;
  virtual std::size_t layers() const = 0;
  virtual const std::vector<DevicePool>& pools() const = 0;
  /// In the order of their pools, then those of several pools, which lie in the same hosts; of
  /// equal pools one after the other.
  virtual const std::vector<StageUnit>& units() const = 0;
  /// Sizes of micro-batches that are tried, ascending; not all need be known of every unit.
  virtual const std::vector<std::int64_t>& micro_batches() const = 0;
  /// Is the time of a micro-batch of so many samples known on the unit?
  virtual bool knows(std::size_t unit, std::int64_t micro_batch) const = 0;
  /// All layers; only if knows().
  virtual std::vector<LayerWork> work(std::size_t unit, std::int64_t micro_batch) const = 0;
  virtual std::vector<LayerBytes> bytes(std::size_t unit) const = 0;
  /// What each member holds whatever it computes.
  virtual Bytes held(std::size_t unit) const = 0;
  /// Of each member of a unit; where they are unlike of the one that has least, beside which what
  /// they hold is said.
  virtual Bytes memory(std::size_t unit) const {
    Bytes least = pools()[units()[unit].pool()].memory;
    for (const UnitPart& part : units()[unit].parts)
      least = std::min(least, pools()[part.pool].memory);
    return least;
  }
  /// Absent: no link, or nobody knows its rate.
  virtual std::optional<Hop> hop(HopEnd from, HopEnd to, HopReach reach, Bytes bytes) const = 0;
  /// All that a host of the pool sends to other hosts, and that it receives from them, at most.
  virtual BytesPerSecond host_rate(std::size_t pool) const = 0;
  /// Two layers that share their weights: in one stage they are held once, else their gradients are
  /// summed between the two stages.
  virtual std::optional<std::pair<std::size_t, std::size_t>> tied() const = 0;
  /// Does a message stop both stages until it has passed, as blocking sends on the stream of
  /// computation do? Otherwise it overlaps with computation.
  virtual bool messages_block() const { return false; }
  /// What was asked for and is left out, a sentence each.
  virtual const std::vector<std::string>& notes() const = 0;
};

}  // namespace motley::search
