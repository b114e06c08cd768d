#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "motley/synth/stages/stage_sharding.h"
#include "motley/synth/step/place.h"
#include "motley/synth/step/sharded_step.h"

namespace motley::synth {

/// A device of a stage.
struct Seat {
  std::size_t stage = 0, member = 0, rank = 0;
};

/// How a stage's devices run it: the part that all of them share.
struct ShardedStage {
  StageSharding found;
  PartOfStep part = {};
  std::optional<ShardedStep> step = {};
  std::optional<Parts> parts = {};
  std::vector<std::size_t> slots = {};  ///< by operator: its place in the order
};

/// Rows of a boundary value's slab from one member to another; 0 to 1 of a whole value.
struct BoundaryPiece {
  std::size_t from = 0, to = 0;
  std::int64_t begin = 0, end = 0;
};

/// A step in stages whose devices share their operators.
struct ShardedStages {
  StagedStep step;
  std::vector<std::string> names;  ///< of devices, by rank
  std::deque<ShardedStage> stages = {};
  std::vector<graph::Form> forms = {};       ///< by boundary value: in which it travels
  std::vector<Seat> seats = {};              ///< stage by stage
  std::vector<std::size_t> first_seat = {};  ///< by stage

  const graph::Graph& graph_of(const Seat& seat) const { return step.stages[seat.stage].graph; }
  std::int64_t position_of(std::size_t stage, OpId op) const {
    return step.stages[stage].positions[stages[stage].slots[op.index()]];
  }
  /// Returns begin and end of what a member has of an extent.
  std::pair<std::int64_t, std::int64_t> span(std::size_t stage, std::size_t member,
                                             std::int64_t extent);
  /// Returns every row of a boundary value once per reader, by reader.
  std::vector<BoundaryPiece> find_pieces(std::size_t value);
};

/// Shards each stage and puts its operators and the boundary values in their final order. `names`:
/// of devices, by rank. Errors of find_stage_shardings; usage error (synth.unsupported) where a
/// device has a parameter in two stages of which one is shared with other devices. O(graph).
Result<std::unique_ptr<ShardedStages>> shard_stages(const graph::Graph& model, StagedStep step,
                                                    std::vector<std::string> names,
                                                    const LowerOptions& options);

}  // namespace motley::synth
