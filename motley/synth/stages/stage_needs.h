#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "motley/synth/stages/stage_graphs.h"

namespace motley::synth {

inline constexpr std::size_t kNowhere = SIZE_MAX;

/// An operator of the graph of all replicas (accumulate_replicas) in a stage.
struct StagedOp {
  std::size_t op, stage;
  auto operator<=>(const StagedOp&) const = default;
};

/// Which operators of the graph of all replicas each stage runs, and which values pass between
/// stages.
struct StageNeeds {
  const graph::Graph& model;
  const Accumulation& all;  ///< all replicas
  const std::vector<StageGraph>& stages;
  std::vector<std::vector<std::size_t>> regions;  ///< by replica and operator of the model
  std::vector<std::size_t> first_stage = {};      ///< by replica
  std::vector<std::size_t> producers = {};  ///< by value: the operator; kNowhere: it is a source
  std::map<ValueId, ValueId> sources = {};  ///< of the model -> of all: parameters and buffers
  std::vector<std::vector<std::size_t>> stages_of = {};  ///< by operator: ascending
  /// by producer: values, and the stages that read them
  std::map<StagedOp, std::set<std::pair<ValueId, std::size_t>>> passing = {};
  std::vector<std::set<std::size_t>> readers = {};  ///< by value: stages; of sources at least
  /// output, stage, value: new values of buffers that other stages have too
  std::set<std::tuple<std::size_t, std::size_t, ValueId>> updated = {};

  std::size_t producer(ValueId value) const { return producers[value.index()]; }
  /// Returns the stage of an operator in a replica; kNowhere: wherever it is read.
  std::size_t home(std::size_t op, std::size_t replica) const;
  std::size_t stage_of(const Accumulation::Term& term) const;
  /// Returns where a stage's operand comes from; op kNowhere: it is a source.
  StagedOp maker(ValueId value, std::size_t stage) const;
  /// Returns the operand of a sum over replicas that the stage's replica gives.
  ValueId own_term(std::size_t op, std::size_t stage) const;
  bool is_sum(std::size_t op) const { return all.graph.ops[op].name == kSumReplicas; }
  /// Visits the operands of an operator in a stage.
  template <typename Visit>
  void for_each_operand(const StagedOp& at, const Visit& visit) const {
    if (is_sum(at.op)) return visit(own_term(at.op, at.stage));
    graph::for_each_value(all.graph.ops[at.op].arguments, visit);
  }
};

/// Finds them for stages with their replicas. `regions`: by replica and operator of the model.
/// References must outlive the result. O(graph log stages).
StageNeeds find_stage_needs(const graph::Graph& model, const Accumulation& all,
                            const std::vector<StageGraph>& stages,
                            std::vector<std::vector<std::size_t>> regions);

}  // namespace motley::synth
