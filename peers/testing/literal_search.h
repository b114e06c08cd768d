#pragma once

#include <bitset>
#include <functional>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "peers/hap/cost.h"
#include "peers/hap/rules.h"

namespace motley::peers {

/// The released planner's search to the letter, as an oracle for small graphs; only tests include
/// this. Properties and tokens are bits of a set; every load, operator and conversion is a triple;
/// loads and conversions are fused into each triple that reads their result; sets of properties are
/// taken in order of cost until one is finished.
class LiteralSearch {
 public:
  LiteralSearch(const ReferenceGraph& graph, const std::vector<OperatorRules>& rules,
                const HapCost& cost)
      : graph_(graph), cost_(cost) {
    for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
      start_.set(may_make(i));
      if (graph.tensors[i].communicatable) start_.set(may_communicate(i));
    }
    add_operators(rules);
    fuse(make_loads());
    fuse(make_conversions());
  }

  double seconds() {
    using Entry = std::pair<double, std::size_t>;
    std::vector<Properties> sets = {start_};
    std::unordered_map<Properties, double> best = {{start_, 0.0}};
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
    open.push({0, 0});
    while (!open.empty()) {
      const auto [cost, index] = open.top();
      open.pop();
      const Properties now = sets[index];
      if (best[now] < cost) continue;
      if (now.test(kFinished)) return cost;
      for (const Step& step : steps_) {
        if ((now & step.pre) != step.pre || (now | step.post) == now) continue;
        const Properties next = (now | step.post) & ~step.spent;
        const auto [entry, is_new] = best.try_emplace(next, cost + step.seconds);
        if (!is_new && entry->second <= cost + step.seconds) continue;
        entry->second = cost + step.seconds;
        sets.push_back(next);
        open.push({entry->second, sets.size() - 1});
      }
    }
    return -1;
  }

 private:
  static constexpr std::size_t kBits = 512, kFinished = kBits - 1, kPerTensor = 16;
  using Properties = std::bitset<kBits>;
  struct Step {
    Properties pre, post, spent;
    double seconds = 0;
  };

  static std::size_t may_make(std::size_t tensor) { return tensor * kPerTensor; }
  static std::size_t may_communicate(std::size_t tensor) { return tensor * kPerTensor + 1; }
  static std::size_t held(std::size_t tensor, Form form) {
    std::size_t bit = 0;
    while ((form.bit() >> bit & 1) == 0) ++bit;
    return tensor * kPerTensor + 2 + bit;
  }
  std::vector<Form> forms_of(std::size_t tensor) const {
    std::vector<Form> forms = {Form::identity(), Form::reduce()};
    for (std::size_t d = 0; d < graph_.tensors[tensor].shape.size(); ++d)
      forms.push_back(Form::gather(d));
    return forms;
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
    finish.pre.set(held(graph_.loss.index(), Form::reduce()));
    finish.post.set(kFinished);
    steps_.push_back(finish);
  }

  std::vector<Step> make_loads() const {
    std::vector<Step> loads;
    for (std::size_t i = 0; i < graph_.tensors.size(); ++i) {
      const ReferenceTensor& tensor = graph_.tensors[i];
      if (tensor.role == TensorRole::kActivation) continue;
      for (const Form form : forms_of(i)) {
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
      for (const Form from : forms_of(i)) {
        for (const Form to : forms_of(i)) {
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
};

/// Seconds of the fastest program; -1 when there is none. At most 31 tensors of rank 11.
inline double literal_search_seconds(const ReferenceGraph& graph,
                                     const std::vector<OperatorRules>& rules, const HapCost& cost) {
  return LiteralSearch(graph, rules, cost).seconds();
}

}  // namespace motley::peers
