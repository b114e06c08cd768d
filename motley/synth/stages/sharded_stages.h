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

/// How a stage's devices run it: what is the same for all of them.
struct ShardedStage {
  StageSharding found;
  PartOfStep part = {};
  std::optional<ShardedStep> step = {};
  std::optional<Parts> parts = {};
  std::vector<std::size_t> slots = {};  ///< by operator: its place in the order
};

/// Rows of a boundary value's slab that one member gives another; of a whole value 0 to 1.
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
  /// Where an operator of a stage stands in the step.
  std::int64_t position_of(std::size_t stage, OpId op) const {
    return step.stages[stage].positions[stages[stage].slots[op.index()]];
  }
  /// Begin and end of what a device has of a form's extent, of all of it where it has it whole.
  std::pair<std::int64_t, std::int64_t> span(std::size_t stage, std::size_t member,
                                             std::int64_t extent);
  /// Of the boundary value at a place: every row once for each reader, by reader.
  std::vector<BoundaryPiece> find_pieces(std::size_t value);
};

/// Finds how each stage is run and puts its operators in their final order; boundary values are
/// then by their final positions. `names`: of devices, by rank. Errors of find_stage_shardings;
/// usage error (synth.unsupported) where a device has a parameter in two stages of which one is
/// shared with other devices. O(graph).
Result<std::unique_ptr<ShardedStages>> shard_stages(const graph::Graph& model, StagedStep step,
                                                    std::vector<std::string> names,
                                                    const LowerOptions& options);

}  // namespace motley::synth
