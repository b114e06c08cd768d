#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/plan/pass_order.h"
#include "motley/search/stages/costs/stage_costs.h"

namespace motley::search {

/// Layers [first, end) on a unit's devices: those of its pool in a host from `slot` on. Stages of
/// one replica may share devices (StageReplica::seats), with identical devices or none in common.
struct PlannedStage {
  std::size_t first = 0, end = 0;
  std::size_t unit = 0;  ///< in StageCosts::units()
  int host = 0;          ///< among the unit's pools' hosts
  int slot = 0;          ///< the unit's first device in the host
  /// The first devices of its further pools; 0 for missing ones.
  std::vector<int> more_slots = {};
  int slot_of(std::size_t part) const {
    if (part == 0) return slot;
    return part <= more_slots.size() ? more_slots[part - 1] : 0;
  }
  bool has(std::size_t layer) const { return first <= layer && layer < end; }
  bool operator==(const PlannedStage&) const = default;
};

using plan::kInterleavedSchedules;
using plan::kTriedSchedules;
using plan::schedule_name;
using plan::StageSchedule;

/// One copy of the model. Its samples run in micro-batches of `micro_batch`; the rest forms a
/// smaller one, which runs before the last if there are three or more.
struct StageReplica {
  std::vector<PlannedStage> stages;  ///< cover the layers in order
  std::int64_t micro_batch = 1;
  std::int64_t samples = 0;
  StageSchedule schedule = StageSchedule::k1F1B;
  /// By stage: its device slot, from 0 in the order of first use; 0, 1, 0, 1 if two units have two
  /// stages each (interleaved). Empty: each stage has separate devices.
  std::vector<std::size_t> seats = {};
  std::size_t seat_of(std::size_t stage) const { return seats.empty() ? stage : seats[stage]; }
  bool operator==(const StageReplica&) const = default;
};

/// Replicas that may differ in everything; unnamed devices are idle.
struct StagePlan {
  std::vector<StageReplica> replicas;
  bool operator==(const StagePlan&) const = default;
};

/// Are its first and last micro-batch full, or does it have one stage and a full micro-batch? The
/// planner's space and bound cover only these replicas (shape_search.h).
bool has_full_ends(const StageReplica& replica);
std::int64_t count_passes(const StageReplica& replica);

/// Moves the cut after stage s by `by` layers. Returns false, unchanged, if a stage would be empty.
template <typename Stage>
bool move_cut(std::vector<Stage>& stages, std::size_t s, int by) {
  const auto cut = static_cast<std::size_t>(static_cast<std::int64_t>(stages[s].end) + by);
  if (cut <= stages[s].first || cut >= stages[s + 1].end) return false;
  stages[s].end = stages[s + 1].first = cut;
  return true;
}

inline bool is_interleaved(const StageReplica& replica) { return !replica.seats.empty(); }
bool is_interleaved(const StagePlan& plan);
/// Returns the stages of each device slot, in order.
std::vector<std::vector<std::size_t>> stages_by_seat(const StageReplica& replica);

std::vector<std::int64_t> micro_batch_sizes(const StageReplica& replica);
/// Returns a micro-batch size of the replica whose time on a unit is unknown, if any.
std::optional<std::int64_t> find_unknown_size(const StageReplica& replica, std::size_t unit,
                                              const StageCosts& costs);
/// Returns the kinds of a unit's devices: "a100-40g", "a100-40g + v100-16g".
std::string kinds_text(const StageUnit& unit, const StageCosts& costs);
/// Returns the number of used devices of each pool, each counted once.
std::vector<int> used_devices(const StagePlan& plan, const StageCosts& costs);
/// Returns the first fault: "replica 1, stage 0: layers 3 to 2, wanted a start at 0". A device is
/// in one replica, hosts and slots exist, and each replica has samples.
Result<void> verify_stage_plan(const StagePlan& plan, const StageCosts& costs);

/// How place_stages() orders stages: stage by stage over identical replicas, so that hosts hold
/// copies of the same layers (kByStage), or replica by replica (kByReplica). Both start with wide
/// units, so degrees that divide the hosts' devices leave no gaps. kInOrder: by stage, for any
/// width.
enum class StagePlacing { kByStage, kByReplica, kInOrder };
/// Places the stages of a plan without interleaving. Returns false if some do not fit.
bool place_stages(StagePlan& plan, const StageCosts& costs, StagePlacing placing);

}  // namespace motley::search
