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
/// one replica may be on the same devices (StageReplica::seats), all of them or none.
struct PlannedStage {
  std::size_t first = 0, end = 0;
  std::size_t unit = 0;  ///< of StageCosts::units()
  int host = 0;          ///< among those of the unit's pools
  int slot = 0;          ///< the unit's first device in the host
  /// The same of its further pools; fewer than there are: 0.
  std::vector<int> more_slots = {};
  int slot_of(std::size_t part) const {
    if (part == 0) return slot;
    return part <= more_slots.size() ? more_slots[part - 1] : 0;
  }
  bool operator==(const PlannedStage&) const = default;
};

using plan::kInterleavedSchedules;
using plan::kTriedSchedules;
using plan::schedule_name;
using plan::StageSchedule;

/// One copy of the model. Its samples go through it in micro-batches of `micro_batch`; what is left
/// over is a smaller one, which runs before the last if there are three or more.
struct StageReplica {
  std::vector<PlannedStage> stages;  ///< cover the layers in order
  std::int64_t micro_batch = 1;
  std::int64_t samples = 0;
  StageSchedule schedule = StageSchedule::k1F1B;
  /// By stage the number of its devices, from 0 in the order of first use: 0, 1, 0, 1 where two
  /// units have two stages each (interleaved). Empty: each stage has devices of its own.
  std::vector<std::size_t> seats = {};
  bool operator==(const StageReplica&) const = default;
};

/// Replicas that may differ in everything; devices that none names are idle.
struct StagePlan {
  std::vector<StageReplica> replicas;
  bool operator==(const StagePlan&) const = default;
};

/// Are its first and last micro-batch full, or is it of one stage and has a full one? The planner's
/// space is of such replicas, as its bound is (shape_search.h).
bool has_full_ends(const StageReplica& replica);
/// Of micro-batches through stages, there and back.
std::int64_t count_passes(const StageReplica& replica);

/// Moves the cut behind stage s of PlannedStage or ShapeStage by so many layers; false, and all is
/// as it was, where a stage would have none left.
template <typename Stage>
bool move_cut(std::vector<Stage>& stages, std::size_t s, int by) {
  const auto cut = static_cast<std::size_t>(static_cast<std::int64_t>(stages[s].end) + by);
  if (cut <= stages[s].first || cut >= stages[s + 1].end) return false;
  stages[s].end = stages[s + 1].first = cut;
  return true;
}

/// StageReplica::seats, where they are not said, too.
std::vector<std::size_t> find_seats(const StageReplica& replica);
inline bool is_interleaved(const StageReplica& replica) { return !replica.seats.empty(); }
bool is_interleaved(const StagePlan& plan);
/// The stages of each seat, in order.
std::vector<std::vector<std::size_t>> stages_by_seat(const StageReplica& replica);

/// Samples of each micro-batch, in order.
std::vector<std::int64_t> micro_batch_sizes(const StageReplica& replica);
/// The size of a micro-batch of the replica of which nobody knows what it takes on a unit, if any.
std::optional<std::int64_t> find_unknown_size(const StageReplica& replica, std::size_t unit,
                                              const StageCosts& costs);
/// Kinds of a unit's devices: "a100-40g", "a100-40g + v100-16g".
std::string kinds_text(const StageUnit& unit, const StageCosts& costs);
/// Devices used of each pool, each once.
std::vector<int> used_devices(const StagePlan& plan, const StageCosts& costs);
/// The first thing that is wrong: "replica 1, stage 0: layers 3 to 2, wanted a start at 0". A
/// device is in one replica, hosts and slots exist, each replica has samples.
Result<void> verify_stage_plan(const StagePlan& plan, const StageCosts& costs);

/// Gives places to stages: in each pool stage by stage of replicas that are identical, so that
/// hosts hold copies of the same layers (kByStage), or replica by replica (kByReplica). Wider units
/// come first, so degrees that divide the hosts' devices leave no gaps. kInOrder: stage by stage,
/// whatever their width. Of plans that are not interleaved. False if some do not fit.
enum class StagePlacing { kByStage, kByReplica, kInOrder };
bool place_stages(StagePlan& plan, const StageCosts& costs, StagePlacing placing);

}  // namespace motley::search
