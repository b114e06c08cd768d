#include "motley/synth/step/turns.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

namespace motley::synth {
namespace {

class Turns {
 public:
  Turns(const graph::Graph& graph, const std::vector<OpNeeds>& ops, std::vector<OpId>& order)
      : graph_(graph),
        ops_(ops),
        order_(order),
        is_left_(graph.ops.size(), 0),
        made_in_(graph.values.size(), kBefore),
        is_there_(graph.values.size(), 0) {}

  /// Interleaves `turns` micro-batches at a time in a range of the order.
  void run(const OpStretch& stretch, std::int64_t turns) {
    std::map<std::int64_t, std::vector<OpId>> micro_batches;
    for (std::size_t i = stretch.first; i < stretch.end; ++i)
      micro_batches[ops_[order_[i].index()].micro_batch].push_back(order_[i]);
    if (micro_batches.size() < 2) return;
    next_ = stretch.first;
    for (std::size_t i = stretch.first; i < stretch.end; ++i) is_left_[order_[i].index()] = 1;
    std::map<std::int64_t, std::vector<Queue>> together;
    for (auto& [micro_batch, ops] : micro_batches)
      together[micro_batch / turns].push_back({std::move(ops), 0});
    for (auto& [group, queues] : together) take(queues);
  }

 private:
  static constexpr std::int64_t kBefore = -1;

  struct Queue {
    std::vector<OpId> ops;
    std::size_t next = 0;
  };

  void take(std::vector<Queue>& queues) {
    std::size_t over = 0;
    for (std::size_t q = 0; over < queues.size(); q = (q + 1) % queues.size()) {
      Queue& queue = queues[q];
      if (queue.next == queue.ops.size()) continue;
      ++turn_;
      while (queue.next < queue.ops.size() && !would_wait(queue.ops[queue.next]))
        put(queue.ops[queue.next++]);
      if (queue.next == queue.ops.size()) ++over;
    }
  }

  /// Does it need a value made in this turn, whose exchange no other micro-batch has hidden yet?
  bool would_wait(OpId op) const {
    if (!is_left_[op.index()]) return false;
    const std::vector<ValueId>& exchanged = ops_[op.index()].exchanged;
    return std::any_of(exchanged.begin(), exchanged.end(), [&](ValueId value) {
      return !is_there_[value.index()] && made_in_[value.index()] == turn_;
    });
  }

  void put(OpId op) {
    if (!std::exchange(is_left_[op.index()], 0)) return;
    const graph::Op& about = graph_.op(op);
    graph::for_each_value(about.arguments, [&](ValueId value) {
      const OpId producer = graph_.value(value).producer;
      if (!producer.is_none()) put(producer);
    });
    for (const ValueId value : ops_[op.index()].exchanged) is_there_[value.index()] = 1;
    for (const ValueId output : about.outputs) made_in_[output.index()] = turn_;
    order_[next_++] = op;
  }

  const graph::Graph& graph_;
  const std::vector<OpNeeds>& ops_;
  std::vector<OpId>& order_;
  std::size_t next_ = 0;               // position in the order
  std::vector<char> is_left_;          // by operator
  std::vector<std::int64_t> made_in_;  // by value: the turn
  std::vector<char> is_there_;         // by value: already waited for
  std::int64_t turn_ = 0;
};

}  // namespace

void take_turns(const graph::Graph& graph, const std::vector<OpNeeds>& ops, std::int64_t turns,
                std::size_t early, std::vector<OpId>& order) {
  if (turns > 1) Turns(graph, ops, order).run({early, order.size()}, turns);
}

void take_turns(const graph::Graph& graph, const std::vector<OpNeeds>& ops,
                const std::vector<OpStretch>& tasks, std::vector<OpId>& order) {
  constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();
  Turns turns(graph, ops, order);
  for (const OpStretch& task : tasks) turns.run(task, kAll);
}

}  // namespace motley::synth
