#pragma once

#include <vector>

#include "motley/graph/graph.h"
#include "motley/graph/rules/sharding_rule.h"
#include "motley/graph/rules/strategy.h"
#include "motley/synth/schedule.h"
#include "motley/synth/sharding.h"

namespace motley::synth {

struct Copy;

/// What lowering finds out about a sharded step before it knows a rank: the same for all.
struct ShardedStep {
  const std::vector<graph::ShardingRule>& rules;  ///< by operator
  std::vector<graph::Form> homes;                 ///< by value: the form that its operator gives
  std::vector<graph::Form> outputs;               ///< by output: the form in which it must end
  /// By value: other forms that it gets by itself, as soon as it is there. Terms that are wanted in
  /// several forms are summed once: two sums could differ in their last digit.
  std::vector<std::vector<graph::Form>> wanted;
  Schedule schedule;
  /// Parameters that are kept in parts and wanted whole, gathered together; `ready` is the position
  /// in the order of the first operator that wants one of them.
  std::vector<Bucket> gathers;
  std::vector<graph::AlikeDims> alike;        ///< by value
  const std::vector<Copy>* copies = nullptr;  ///< of an accumulated graph, by operator
};

/// `rules` as find_rules gives them, which must outlive the step; the sharding is sound. O(graph).
ShardedStep plan_step(const graph::Graph& graph, const Sharding& sharding,
                      const std::vector<graph::ShardingRule>& rules, Bytes bucket_bytes);

/// Is what a device has of the value in one form also what it has in the other? So it is if all
/// elements along the dimension that is cut are equal, and as many of them.
bool is_same(const graph::Form& from, const graph::Form& to, graph::AlikeDims alike);

/// Is the operand read for its dtype only?
bool is_ignored(const graph::ShardingRule& rule, std::size_t operand);

/// Are the samples of a loss's operand x split, not its classes?
bool splits_samples(const graph::Form& x);

}  // namespace motley::synth
