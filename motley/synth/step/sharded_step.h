#pragma once

#include <set>
#include <utility>
#include <vector>

#include "motley/graph/graph.h"
#include "motley/graph/rules/sharding_rule.h"
#include "motley/graph/rules/strategy.h"
#include "motley/synth/step/schedule.h"
#include "motley/synth/step/sharding.h"

namespace motley::synth {

/// The forms of values by id, filled in as operators get their strategies.
struct Held {
  explicit Held(std::size_t values) : homes(values, graph::kWholeForm), identical(values, 0) {}
  /// Adds the results of an operator with this strategy.
  void add(const graph::Op& op, const graph::ShardingRule& rule, const graph::Strategy& strategy);

  std::vector<graph::Form> homes;  ///< the form that its operator produces
  std::vector<graph::IdenticalDims> identical;
};

/// The origin of an operator of an accumulated step.
struct Copy {
  OpId of;  ///< operator of the model's graph; none: added
  std::int64_t micro_batch = 0;
  plan::Stretch stretch = {};  ///< the micro-batch's samples
  OpId beside = {};            ///< for an added operator: its reader in the model; none: any
  /// The samples of the whole batch in its first result; whole if it has none.
  graph::Form samples = graph::kWholeForm;
  /// A copy for a parameter that is gathered again in the micro-batch (recomputation.h).
  bool is_gathered_again = false;
  bool operator==(const Copy&) const = default;
};

/// Describes a step that is a part of a larger one (stage_graphs.h).
struct PartOfStep {
  /// Values that other parts need in a form, besides those of operators and outputs.
  std::vector<std::pair<ValueId, graph::Form>> given;
  /// By input of this part: its index among all inputs.
  std::vector<std::int64_t> inputs;
  /// Parameters that other parts have, too. Terms of a whole parameter's gradient are summed
  /// together with those of the other parts.
  std::set<ValueId> shared = {};
  /// Its tasks, except work before and after all micro-batches; operators may move within a task.
  std::vector<OpStretch> tasks = {};
};

/// The part of lowering a sharded step that is the same for all ranks.
struct ShardedStep {
  const graph::Graph& graph;
  const Sharding& sharding;
  const std::vector<graph::ShardingRule>& rules;  ///< by operator
  LowerOptions options;
  const std::vector<Copy>* copies = nullptr;  ///< of an accumulated graph, by operator
  const PartOfStep* part = nullptr;           ///< of a larger step: its tasks keep their order
  Held held;                                  ///< by value
  std::vector<graph::Form> outputs = {};      ///< by output: its required form
  /// By value: other forms to which it is converted as soon as it is ready. Terms needed in several
  /// forms are summed once, as two sums could differ in the last digit.
  std::vector<std::vector<graph::Form>> wanted = {};
  Schedule schedule = {};
  /// Sharded parameters that are needed whole, in shared gathers; those gathered again are
  /// separate. `ready` is the position in the order of the first operator that needs one of them.
  std::vector<Bucket> gathers = {};
  /// In a part of a larger step: position in the order of the last operator that exchanges with
  /// other devices; -1 if none does.
  std::int64_t last_exchange = -1;

  /// Must whole values be one device's, where each device would compute its own (plan::Updates)?
  bool is_portable() const {
    return options.updates == plan::Updates::kPortable && sharding.devices.size() > 1;
  }
  const graph::Form& home(ValueId value) const { return held.homes[value.index()]; }
  /// Is a device's part of the value in its home form identical to that in `form`?
  bool is_home(ValueId value, const graph::Form& form) const;
};

/// Plans a step. `rules`: from find_rules; sharding: valid. References must outlive it. O(graph).
ShardedStep plan_step(const graph::Graph& graph, const Sharding& sharding,
                      const std::vector<graph::ShardingRule>& rules, const LowerOptions& options,
                      const std::vector<Copy>* copies = nullptr, const PartOfStep* part = nullptr);

/// Is a device's part of the value the same in both forms? This holds if all elements along the cut
/// dimension are equal and their number is the same.
bool is_same(const graph::Form& from, const graph::Form& to, graph::IdenticalDims identical);

/// Is the operand read only for its dtype?
bool is_ignored(const graph::ShardingRule& rule, std::size_t operand);

/// Is it a negative log-likelihood of labels (x, target, weight, reduction, ignore_index)?
bool is_nll(const graph::Op& op);
inline constexpr std::int64_t kNoReduction = 0, kMeanReduction = 1, kSumReduction = 2;

/// Are the samples of a loss's operand x split, and not its classes?
bool splits_samples(const graph::Form& x);

}  // namespace motley::synth
