#pragma once

#include <algorithm>
#include <bitset>
#include <functional>
#include <limits>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "peers/hap/cost.h"
#include "peers/hap/rules.h"

namespace motley::peers {

/// What a search adds to the cost of a set of properties to choose the next: nothing, as the
/// released program does (uniform cost); or, as the paper says (A*), the least time of computing
/// what is still to be computed for the loss, exchanges left out. That never exceeds what remains,
/// and computing an operator lowers it by no more than the operator's triple costs.
enum class Remaining { kIgnored, kBounded };

/// HAP's search to the letter, as an oracle for small graphs. Properties and tokens are bits of a
/// set; every load, operator and conversion is a triple; loads and conversions are fused into each
/// triple that reads their result; sets of properties are taken in order of cost and bound until
/// one is finished.
class LiteralSearch {
 public:
  LiteralSearch(const ReferenceGraph& graph, const std::vector<OperatorRules>& rules,
                const HapCost& cost, Remaining remaining)
      : graph_(graph), cost_(cost) {
    if (remaining == Remaining::kBounded) bound_operators(rules);
    for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
      start_.set(may_make(i));
      if (graph.tensors[i].communicatable) start_.set(may_communicate(i));
    }
    add_operators(rules);
    fuse(make_loads());
    fuse(make_conversions());
  }

  /// Of the fastest program; -1 when there is none. At most 31 tensors of rank 10.
  double seconds() {
    struct Entry {
      double estimate, cost;
      std::size_t index;
      bool operator>(const Entry& other) const { return estimate > other.estimate; }
    };
    std::vector<Properties> sets = {start_};
    std::unordered_map<Properties, double> best = {{start_, 0.0}};
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
    open.push({bound(start_), 0, 0});
    while (!open.empty()) {
      const Entry entry = open.top();
      open.pop();
      const Properties now = sets[entry.index];
      if (best[now] < entry.cost) continue;
      if (now.test(kFinished)) return entry.cost;
      ++expansions_;
      for (const Step& step : steps_) {
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
  /// Sets from which the search went on.
  std::size_t expansions() const { return expansions_; }

 private:
  static constexpr std::size_t kBits = 512, kFinished = kBits - 1, kPerTensor = 16;
  using Properties = std::bitset<kBits>;
  struct Step {
    Properties pre, post, spent;
    double seconds = 0;
  };

  static std::size_t may_make(std::size_t tensor) { return tensor * kPerTensor; }
  static std::size_t may_communicate(std::size_t tensor) { return tensor * kPerTensor + 1; }
  static std::size_t held(std::size_t tensor, HapForm form) {
    std::size_t bit = 0;
    while ((form.bit() >> bit & 1) == 0) ++bit;
    return tensor * kPerTensor + 2 + bit;
  }
  std::vector<HapForm> forms_of(std::size_t tensor) const {
    std::vector<HapForm> forms = {HapForm::identity(), HapForm::reduce(), HapForm::factored()};
    for (std::size_t d = 0; d < graph_.tensors[tensor].shape.size(); ++d)
      forms.push_back(HapForm::gather(d));
    return forms;
  }

  /// The least time of each operator that the loss needs.
  void bound_operators(const std::vector<OperatorRules>& rules) {
    std::vector<bool> is_needed(graph_.tensors.size());
    is_needed[graph_.loss.index()] = true;
    for (std::size_t i = rules.size(); i-- > 0;) {
      const ReferenceOperator& op = graph_.operators[i];
      if (std::none_of(op.outputs.begin(), op.outputs.end(),
                       [&](TensorId id) { return is_needed[id.index()]; }))
        continue;
      for (const TensorId input : op.inputs) is_needed[input.index()] = true;
      double least = std::numeric_limits<double>::infinity();
      for (const Triple& triple : rules[i].triples)
        least = std::min(least, cost_.compute(triple).seconds(cost_.effect()));
      least_.emplace_back(may_make(op.outputs.front().index()), least);
    }
  }
  double bound(const Properties& now) const {
    double sum = 0;
    for (const auto& [token, seconds] : least_)
      if (now.test(token)) sum += seconds;
    return sum;
  }

  void add_operators(const std::vector<OperatorRules>& rules) {
    for (std::size_t i = 0; i < rules.size(); ++i) {
      const ReferenceOperator& op = graph_.operators[i];
      for (const Triple& triple : rules[i].triples) {
        Step step;
        step.seconds = cost_.compute(triple).seconds(cost_.effect());
        for (std::size_t k = 0; k < op.inputs.size(); ++k)
          if (triple.pre[k]) step.pre.set(held(op.inputs[k].index(), *triple.pre[k]));
        for (std::size_t k = 0; k < op.outputs.size(); ++k) {
          step.post.set(held(op.outputs[k].index(), triple.post[k]));
          step.pre.set(may_make(op.outputs[k].index()));
          step.spent.set(may_make(op.outputs[k].index()));
        }
        steps_.push_back(step);
      }
    }
    Step finish;
    finish.pre.set(held(graph_.loss.index(), HapForm::reduce()));
    finish.post.set(kFinished);
    steps_.push_back(finish);
  }

  std::vector<Step> make_loads() const {
    std::vector<Step> loads;
    for (std::size_t i = 0; i < graph_.tensors.size(); ++i) {
      const ReferenceTensor& tensor = graph_.tensors[i];
      if (tensor.role == TensorRole::kActivation) continue;
      for (const HapForm form : forms_of(i)) {
        const auto time = cost_.load(tensor, form);
        if (!time) continue;
        Step load;
        load.pre.set(may_make(i));
        load.spent.set(may_make(i));
        load.post.set(held(i, form));
        load.seconds = time->seconds(cost_.effect());
        loads.push_back(load);
      }
    }
    return loads;
  }

  std::vector<Step> make_conversions() const {
    std::vector<Step> conversions;
    for (std::size_t i = 0; i < graph_.tensors.size(); ++i) {
      if (!graph_.tensors[i].communicatable) continue;
      for (const HapForm from : forms_of(i)) {
        for (const HapForm to : forms_of(i)) {
          const auto time = cost_.conversion(graph_.tensors[i], from, to);
          if (!time) continue;
          Step conversion;
          conversion.pre.set(held(i, from));
          conversion.pre.set(may_communicate(i));
          conversion.spent.set(may_communicate(i));
          conversion.post.set(held(i, to));
          conversion.seconds = time->seconds(cost_.effect());
          conversions.push_back(conversion);
        }
      }
    }
    return conversions;
  }

  /// Puts each part before every step that reads its result; a token is spent only once.
  void fuse(const std::vector<Step>& parts) {
    for (const Step& part : parts) {
      const std::size_t count = steps_.size();
      for (std::size_t i = 0; i < count; ++i) {
        const Step& reader = steps_[i];
        if ((reader.pre & part.post).none() || (reader.spent & part.spent).any()) continue;
        Step fused = reader;
        fused.pre = (reader.pre & ~part.post) | part.pre;
        fused.post = reader.post | part.post;
        fused.spent = reader.spent | part.spent;
        fused.seconds = reader.seconds + part.seconds;
        steps_.push_back(fused);
      }
    }
  }

  const ReferenceGraph& graph_;
  const HapCost& cost_;
  Properties start_;
  std::vector<Step> steps_;
  std::vector<std::pair<std::size_t, double>> least_;  ///< token of an operator, its least time
  std::size_t expansions_ = 0;
};

}  // namespace motley::peers
