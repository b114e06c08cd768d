#include "motley/graph/layer_chain.h"

#include <algorithm>
#include <limits>

#include "motley/graph/layers.h"

namespace motley::graph {
namespace {

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

/// By operator the layer of its module, in the order of the forward pass; kNone: of no module.
std::vector<std::size_t> find_modules(const Graph& graph, LayerChain& chain) {
  std::vector<std::size_t> of(graph.ops.size(), kNone);
  std::vector<Layer> layers = find_layers(graph);
  const auto begin = [&](const Layer& layer) {
    for (const OpId id : layer.ops)
      if (graph.op(id).direction == Direction::kForward) return id.index();
    return kNone;
  };
  std::stable_sort(layers.begin(), layers.end(),
                   [&](const Layer& a, const Layer& b) { return begin(a) < begin(b); });
  for (const Layer& layer : layers) {
    if (layer.path.empty() || begin(layer) == kNone) continue;
    for (const OpId id : layer.ops) of[id.index()] = chain.names.size();
    chain.names.push_back(layer.path);
  }
  return of;
}

/// Finds the layers of operators, one pass over the graph after the other.
class Chaining {
 public:
  Chaining(const Graph& graph, const std::vector<std::size_t>& modules,
           std::vector<std::size_t>& of)
      : graph_(graph), modules_(modules), of_(of) {}

  void run() {
    follow_operands();
    join_readers();
    for (std::size_t i = 0; i < graph_.ops.size(); ++i)
      if (is_forward(i) && of_[i] == kNone) of_[i] = 0;
    follow_operands();  // some of those stand further behind now
    go_back();
  }

 private:
  bool is_forward(std::size_t op) const { return graph_.ops[op].direction == Direction::kForward; }
  std::size_t layer_of(ValueId value) const {
    const OpId producer = graph_.value(value).producer;
    return producer.is_none() ? kNone : of_[producer.index()];
  }

  /// Forward: not before what it reads.
  void follow_operands() {
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      if (!is_forward(i)) continue;
      if (of_[i] == kNone) of_[i] = modules_[i];
      for_each_value(graph_.ops[i].arguments, [&](ValueId value) {
        const std::size_t at = layer_of(value);
        if (at != kNone && (of_[i] == kNone || of_[i] < at)) of_[i] = at;
      });
    }
  }

  /// What is of no module and reads sources alone belongs to its first reader.
  void join_readers() {
    for (std::size_t i = graph_.ops.size(); i-- > 0;) {
      if (!is_forward(i) || of_[i] == kNone) continue;
      for_each_value(graph_.ops[i].arguments, [&](ValueId value) {
        const OpId producer = graph_.value(value).producer;
        if (producer.is_none() || modules_[producer.index()] != kNone) return;
        bool reads = false;
        for_each_value(graph_.op(producer).arguments,
                       [&](ValueId each) { reads = reads || layer_of(each) != kNone; });
        if (!reads) of_[producer.index()] = std::min(of_[producer.index()], of_[i]);
      });
    }
  }

  /// Backward: not behind the gradients that it reads.
  void go_back() {
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      if (is_forward(i)) continue;
      std::size_t at = modules_[i], saved = 0;
      for_each_value(graph_.ops[i].arguments, [&](ValueId value) {
        const OpId producer = graph_.value(value).producer;
        if (producer.is_none()) return;
        const std::size_t there = of_[producer.index()];
        if (is_forward(producer.index()))
          saved = std::max(saved, there);
        else
          at = std::min(at, there);
      });
      of_[i] = at == kNone ? saved : at;
    }
  }

  const Graph& graph_;
  const std::vector<std::size_t>& modules_;
  std::vector<std::size_t>& of_;
};

}  // namespace

LayerChain find_layer_chain(const Graph& graph) {
  LayerChain chain;
  const std::vector<std::size_t> modules = find_modules(graph, chain);
  if (chain.names.empty()) {
    chain.names = {graph.name};
    chain.of_op.assign(graph.ops.size(), 0);
    return chain;
  }
  chain.of_op.assign(graph.ops.size(), kNone);
  Chaining(graph, modules, chain.of_op).run();
  return chain;
}

}  // namespace motley::graph
