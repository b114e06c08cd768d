#include "motley/synth/recomputation.h"

#include <algorithm>
#include <set>
#include <utility>

namespace motley::synth {
namespace {

using graph::Op;
using graph::SymbolicArgument;
using graph::SymbolicArguments;

class Recomputation {
 public:
  Recomputation(Accumulation& accumulation, const Recomputed& recomputed)
      : from_(accumulation),
        graph_(accumulation.graph),
        copy_of_(graph_.values.size()),
        is_marked_(graph_.ops.size(), 0) {
    for (std::size_t i = from_.early; i < from_.late; ++i)
      is_marked_[i] = is_done_again(i, recomputed) ? 1 : 0;
  }

  /// Values keep the numbers of their operators of before until all are there.
  void run() {
    const std::vector<Op> ops = std::exchange(graph_.ops, {});
    const std::vector<Copy> copies = std::exchange(from_.copies, {});
    std::size_t early = 0, late = 0;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (i == from_.early) early = graph_.ops.size();
      if (i == from_.late) late = graph_.ops.size();
      Op op = ops[i];
      if (op.direction == graph::Direction::kBackward) {
        for (const std::size_t again : find_wanted(op, ops)) add_copy(ops[again], copies[again]);
        map_operands(op);
      }
      add(std::move(op), copies[i]);
    }
    for (std::size_t i = 0; i < graph_.ops.size(); ++i)
      for (const ValueId output : graph_.ops[i].outputs)
        graph_.values[output.index()].producer = OpId(static_cast<std::int64_t>(i));
    from_.early = from_.early == ops.size() ? graph_.ops.size() : early;
    from_.late = from_.late == ops.size() ? graph_.ops.size() : late;
  }

 private:
  bool is_done_again(std::size_t op, const Recomputed& recomputed) const {
    const Copy& copy = from_.copies[op];
    // What micro-batches share is kept for the next one.
    const bool is_shared = from_.micro_batches > 1 && copy.samples == graph::kWholeForm;
    if (copy.of.is_none() || copy.micro_batch < 0 || is_shared ||
        graph_.ops[op].direction != graph::Direction::kForward)
      return false;
    const auto micro_batch = static_cast<std::size_t>(copy.micro_batch);
    const auto& ranges = recomputed.operators[recomputed.replica_of[micro_batch]];
    return std::any_of(ranges.begin(), ranges.end(), [&](const plan::OpRange& range) {
      return range.first <= copy.of.value && copy.of.value < range.end;
    });
  }

  /// What has to be done again, and is not yet, before the operator.
  std::set<std::size_t> find_wanted(const Op& reader, const std::vector<Op>& ops) const {
    std::set<std::size_t> wanted;
    std::vector<const Op*> readers{&reader};
    while (!readers.empty()) {
      const Op& next = *readers.back();
      readers.pop_back();
      graph::for_each_value(next.arguments, [&](ValueId value) {
        if (value.index() >= copy_of_.size()) return;
        const OpId producer = graph_.value(value).producer;
        if (producer.is_none() || is_marked_[producer.index()] == 0 ||
            !copy_of_[value.index()].is_none())
          return;
        if (wanted.insert(producer.index()).second) readers.push_back(&ops[producer.index()]);
      });
    }
    return wanted;
  }

  void add_copy(const Op& op, const Copy& copy) {
    Op again = op;
    again.direction = graph::Direction::kBackward;
    map_operands(again);
    for (ValueId& output : again.outputs) {
      graph_.values.push_back(graph_.value(output));
      const ValueId made(static_cast<std::int64_t>(graph_.values.size()) - 1);
      copy_of_[output.index()] = made;
      output = made;
    }
    add(std::move(again), copy);
  }

  void map_operands(Op& op) const {
    for (SymbolicArgument& argument : op.arguments) argument = mapped(argument);
  }

  SymbolicArgument mapped(const SymbolicArgument& argument) const {
    if (const auto* id = std::get_if<ValueId>(&argument.value)) {
      const bool has_copy = id->index() < copy_of_.size() && !copy_of_[id->index()].is_none();
      return has_copy ? SymbolicArgument{copy_of_[id->index()]} : argument;
    }
    if (const auto* list = std::get_if<SymbolicArguments>(&argument.value)) {
      SymbolicArguments made;
      for (const SymbolicArgument& each : *list) made.push_back(mapped(each));
      return {made};
    }
    return argument;
  }

  void add(Op op, const Copy& copy) {
    graph_.ops.push_back(std::move(op));
    from_.copies.push_back(copy);
  }

  Accumulation& from_;
  graph::Graph& graph_;
  std::vector<ValueId> copy_of_;  // by value of before; none: what is kept, or not made again yet
  std::vector<char> is_marked_;   // by operator of before
};

}  // namespace

Accumulation recompute(Accumulation accumulation, const Recomputed& recomputed) {
  Recomputation(accumulation, recomputed).run();
  return accumulation;
}

}  // namespace motley::synth
