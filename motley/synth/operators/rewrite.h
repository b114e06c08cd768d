#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "motley/synth/operators/rank_operator.h"

namespace motley::synth {

/// An operator that runs as other instructions if it is split (graph::Split::kRewritten).
struct Rewrite {
  std::string_view name;  ///< "aten::embedding"; any overload
  /// Can this split be rewritten?
  bool (*takes)(const graph::Graph& graph, const graph::Op& op, const graph::Strategy& strategy);
  void (*write)(RankOperator& op);
  /// When the operator is rewritten.
  enum class When : std::uint8_t { kSplit, kAlways } when = When::kSplit;
};

/// The rewrites of a family; the first one that takes a split is used.
using Rewrites = std::span<const Rewrite>;

/// Can lowering rewrite a split that the operator's rule marks as rewritten?
bool can_rewrite(const graph::Graph& graph, const graph::Op& op, const graph::Strategy& strategy);

/// Writes an operator's instructions: rewritten, or plain with local arguments.
void write_operator(RankStep& rank, OpId id);

// ---- conditions on splits

inline bool takes_any(const graph::Graph&, const graph::Op&, const graph::Strategy&) {
  return true;
}
/// Is a dimension split in consecutive parts?
bool is_consecutive(const graph::Form& form);
/// Is the dtype precise enough for statistics and sums?
bool is_single_or_double(const graph::Graph& graph, ValueId value);
bool is_true(const graph::SymbolicArgument& argument);

}  // namespace motley::synth
