#pragma once

#include <bitset>
#include <utility>
#include <vector>

#include "peers/hap/cost.h"
#include "peers/hap/rules.h"

namespace motley::peers {

/// The triples of HAP's search to the letter, for small graphs: at most 31 tensors of rank 10.
/// Properties and tokens are bits of a set; every load, operator and conversion is a triple; loads
/// and conversions are fused into each triple that reads their result.
class LiteralTriples {
 public:
  static constexpr std::size_t kBits = 512, kFinished = kBits - 1, kPerTensor = 16;
  using Properties = std::bitset<kBits>;
  struct Step {
    Properties pre, post, spent;
    double seconds = 0;
  };

  LiteralTriples(const ReferenceGraph& graph, const std::vector<OperatorRules>& rules,
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

  const Properties& start() const { return start_; }
  const std::vector<Step>& steps() const { return steps_; }
  /// Returns the token of a tensor not made yet.
  static std::size_t may_make(std::size_t tensor) { return tensor * kPerTensor; }

 private:
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
};

}  // namespace motley::peers
