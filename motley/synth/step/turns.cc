#include "motley/synth/step/turns.h"

#include <algorithm>
#include <map>
#include <utility>

namespace motley::synth {
namespace {

class Turns {
 public:
  Turns(const graph::Graph& graph, const std::vector<OpNeeds>& ops, std::size_t early,
        std::vector<OpId>& order)
      : graph_(graph),
        ops_(ops),
        order_(order),
        is_left_(graph.ops.size(), 0),
        made_in_(graph.values.size(), kBefore),
        is_there_(graph.values.size(), 0) {
    left_.assign(order.begin() + static_cast<std::ptrdiff_t>(early), order.end());
    order.resize(early);
    for (const OpId op : left_) is_left_[op.index()] = 1;
  }

  void run(std::int64_t turns) {
    std::map<std::int64_t, std::vector<OpId>> micro_batches;
    for (const OpId op : left_) micro_batches[ops_[op.index()].micro_batch].push_back(op);
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

  /// For what was made in this turn, which no other micro-batch has worked beside?
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
    order_.push_back(op);
  }

  const graph::Graph& graph_;
  const std::vector<OpNeeds>& ops_;
  std::vector<OpId>& order_;
  std::vector<OpId> left_;
  std::vector<char> is_left_;          // by operator
  std::vector<std::int64_t> made_in_;  // by value: the turn
  std::vector<char> is_there_;         // by value: it was waited for
  std::int64_t turn_ = 0;
};

}  // namespace

void take_turns(const graph::Graph& graph, const std::vector<OpNeeds>& ops, std::int64_t turns,
                std::size_t early, std::vector<OpId>& order) {
  if (turns > 1) Turns(graph, ops, early, order).run(turns);
}

}  // namespace motley::synth
