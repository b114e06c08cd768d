#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "motley/synth/operators/rank_operator.h"

namespace motley::synth {

/// An operator that runs as other instructions when a factor is split that its rule calls rewritten
/// (graph::Split::kRewritten).
struct Rewrite {
  std::string_view name;  ///< "aten::embedding", of any overload
  /// Can it be done for this split?
  bool (*takes)(const graph::Graph& graph, const graph::Op& op, const graph::Strategy& strategy);
  void (*write)(RankOperator& op);
  /// When its instructions are other ones.
  enum class When : std::uint8_t { kSplit, kAlways } when = When::kSplit;
};

/// Those of a family; the first one that takes a split does it.
using Rewrites = std::span<const Rewrite>;

/// Has lowering instructions for a split that the operator's rule calls rewritten?
bool can_rewrite(const graph::Graph& graph, const graph::Op& op, const graph::Strategy& strategy);

/// Writes an operator's instructions: rewritten, or plain with its local arguments.
void write_operator(RankStep& rank, OpId id);

// ---- what splits are taken of

inline bool takes_any(const graph::Graph&, const graph::Op&, const graph::Strategy&) {
  return true;
}
/// A dimension in consecutive parts.
bool is_consecutive(const graph::Form& form);
/// Can its statistics and sums be taken in its own dtype?
bool is_single_or_double(const graph::Graph& graph, ValueId value);
bool is_true(const graph::SymbolicArgument& argument);

}  // namespace motley::synth
