#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "peers/testing/literal_triples.h"

namespace motley::peers {

/// The bound that a search adds to a set's cost when it chooses the next one. kIgnored: none, as in
/// the released program (uniform cost). kBounded: as in the paper (A*), the least time of computing
/// what the loss still needs, without exchanges. It never exceeds the remaining cost, and computing
/// an operator lowers it by at most the cost of its triple.
enum class Remaining { kIgnored, kBounded };

/// HAP's search to the letter, an oracle for small graphs (LiteralTriples): takes sets of
/// properties in order of cost plus bound until one is finished.
class LiteralSearch {
 public:
  LiteralSearch(const ReferenceGraph& graph, const std::vector<OperatorRules>& rules,
                const HapCost& cost, Remaining remaining)
      : triples_(graph, rules, cost) {
    if (remaining == Remaining::kBounded) bound_operators(graph, rules, cost);
  }

  /// Returns the fastest program's time; -1 when there is none.
  double seconds() {
    struct Entry {
      double estimate, cost;
      std::size_t index;
      bool operator>(const Entry& other) const { return estimate > other.estimate; }
    };
    std::vector<Properties> sets = {triples_.start()};
    std::unordered_map<Properties, double> best = {{triples_.start(), 0.0}};
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
    open.push({bound(triples_.start()), 0, 0});
    while (!open.empty()) {
      const Entry entry = open.top();
      open.pop();
      const Properties now = sets[entry.index];
      if (best[now] < entry.cost) continue;
      if (now.test(LiteralTriples::kFinished)) return entry.cost;
      ++expansions_;
      for (const LiteralTriples::Step& step : triples_.steps()) {
        if ((now & step.pre) != step.pre || (now | step.post) == now) continue;
        const Properties next = (now | step.post) & ~step.spent;
        const double cost = entry.cost + step.seconds;
        const auto [known, is_new] = best.try_emplace(next, cost);
        if (!is_new && known->second <= cost) continue;
        known->second = cost;
        sets.push_back(next);
        open.push({cost + bound(next), cost, sets.size() - 1});
      }
    }
    return -1;
  }
  std::size_t expansions() const { return expansions_; }

 private:
  using Properties = LiteralTriples::Properties;

  /// Finds the least time of each operator that the loss needs.
  void bound_operators(const ReferenceGraph& graph, const std::vector<OperatorRules>& rules,
                       const HapCost& cost) {
    std::vector<bool> is_needed(graph.tensors.size());
    is_needed[graph.loss.index()] = true;
    for (std::size_t i = rules.size(); i-- > 0;) {
      const ReferenceOperator& op = graph.operators[i];
      if (std::none_of(op.outputs.begin(), op.outputs.end(),
                       [&](TensorId id) { return is_needed[id.index()]; }))
        continue;
      for (const TensorId input : op.inputs) is_needed[input.index()] = true;
      double least = std::numeric_limits<double>::infinity();
      for (const Triple& triple : rules[i].triples)
        least = std::min(least, cost.compute(triple).seconds(cost.effect()));
      least_.emplace_back(LiteralTriples::may_make(op.outputs.front().index()), least);
    }
  }
  double bound(const Properties& now) const {
    double sum = 0;
    for (const auto& [token, seconds] : least_)
      if (now.test(token)) sum += seconds;
    return sum;
  }

  LiteralTriples triples_;
  std::vector<std::pair<std::size_t, double>> least_;  ///< an operator's token, its least time
  std::size_t expansions_ = 0;
};

}  // namespace motley::peers
