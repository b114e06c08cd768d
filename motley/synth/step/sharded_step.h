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

/// How values are held so far, by id, while operators get their strategies one after the other.
struct Held {
  explicit Held(std::size_t values) : homes(values, graph::kWholeForm), identical(values, 0) {}
  /// The results of an operator that runs so.
  void add(const graph::Op& op, const graph::ShardingRule& rule, const graph::Strategy& strategy);

  std::vector<graph::Form> homes;  ///< the form that its operator gives
  std::vector<graph::IdenticalDims> identical;
};

/// What an operator of an accumulated step is a copy of.
struct Copy {
  OpId of;  ///< of the model's graph; none: added
  std::int64_t micro_batch = 0;
  plan::Stretch stretch = {};  ///< the micro-batch's samples
  OpId beside = {};            ///< of what was added: the model's operator for which; none: for any
  /// Where its first result there has the samples of the whole batch; whole: it has none.
  graph::Form samples = graph::kWholeForm;
  /// Made again for the micro-batch of a parameter that is gathered again (recomputation.h).
  bool is_gathered_again = false;
  bool operator==(const Copy&) const = default;
};

/// Of a step that is a part of a larger one (stage_graphs.h).
struct PartOfStep {
  /// Values that others are given in a form, beside what operators and outputs want.
  std::vector<std::pair<ValueId, graph::Form>> given;
  /// Of its inputs, in order: which of all inputs each is.
  std::vector<std::int64_t> inputs;
  /// Parameters that other parts have, too: where the gradient of a whole one is in terms, these
  /// are summed together with those of the others.
  std::set<ValueId> shared = {};
  /// Its tasks, but for what comes before and behind all micro-batches: in each, operators may
  /// change places.
  std::vector<OpStretch> tasks = {};
};

/// What lowering finds out about a sharded step before it knows a rank: the same for all.
struct ShardedStep {
  const graph::Graph& graph;
  const Sharding& sharding;
  const std::vector<graph::ShardingRule>& rules;  ///< by operator
  LowerOptions options;
  const std::vector<Copy>* copies = nullptr;  ///< of an accumulated graph, by operator
  const PartOfStep* part = nullptr;           ///< of a larger step: its tasks keep their order
  Held held;                                  ///< by value
  std::vector<graph::Form> outputs = {};      ///< by output: the form in which it must end
  /// By value: other forms that it gets by itself, as soon as it is there. Terms that are wanted in
  /// several forms are summed once: two sums could differ in their last digit.
  std::vector<std::vector<graph::Form>> wanted = {};
  Schedule schedule = {};
  /// Parameters that are kept in parts and wanted whole, gathered together, those that are gathered
  /// again apart; `ready` is the position in the order of the first operator that wants one of
  /// them.
  std::vector<Bucket> gathers = {};
  /// Of a part of a larger step: position in the order of the last operator that exchanges
  /// something with the other devices on the way; -1: none does.
  std::int64_t last_exchange = -1;

  /// Is what devices hold whole one device's number where each would compute its own
  /// (plan::Updates)?
  bool is_portable() const {
    return options.updates == plan::Updates::kPortable && sharding.devices.size() > 1;
  }
  /// The form that the value's operator gives it in.
  const graph::Form& home(ValueId value) const { return held.homes[value.index()]; }
  /// Has a device with the value in its home form what it would have in this one?
  bool is_home(ValueId value, const graph::Form& form) const;
};

/// `rules` as find_rules gives them; the sharding is sound. What is passed by reference must
/// outlive the step. O(graph).
ShardedStep plan_step(const graph::Graph& graph, const Sharding& sharding,
                      const std::vector<graph::ShardingRule>& rules, const LowerOptions& options,
                      const std::vector<Copy>* copies = nullptr, const PartOfStep* part = nullptr);

/// Is what a device has of the value in one form also what it has in the other? So it is if all
/// elements along the dimension that is cut are equal, and as many of them.
bool is_same(const graph::Form& from, const graph::Form& to, graph::IdenticalDims identical);

/// Is the operand read for its dtype only?
bool is_ignored(const graph::ShardingRule& rule, std::size_t operand);

/// A negative log-likelihood of labels (x, target, weight, reduction, ignore_index).
bool is_nll(const graph::Op& op);
inline constexpr std::int64_t kNoReduction = 0, kMeanReduction = 1, kSumReduction = 2;

/// Are the samples of a loss's operand x split, not its classes?
bool splits_samples(const graph::Form& x);

}  // namespace motley::synth
