#include "motley/graph/layer_chain.h"

#include <algorithm>
#include <limits>
#include <optional>

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

}  // namespace

LayerChain find_layer_chain(const Graph& graph) {
  LayerChain chain;
  const std::vector<std::size_t> modules = find_modules(graph, chain);
  chain.of_op.assign(graph.ops.size(), kNone);
  if (chain.names.empty()) {
    chain.names = {graph.name};
    chain.of_op.assign(graph.ops.size(), 0);
    return chain;
  }
  std::vector<std::size_t>& of = chain.of_op;
  const auto is_forward = [&](std::size_t op) {
    return graph.ops[op].direction == Direction::kForward;
  };
  const auto layer_of = [&](ValueId value) {
    const OpId producer = graph.value(value).producer;
    return producer.is_none() ? kNone : of[producer.index()];
  };
  // Forward: not before what it reads.
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    if (!is_forward(i)) continue;
    of[i] = modules[i];
    for_each_value(graph.ops[i].arguments, [&](ValueId value) {
      const std::size_t at = layer_of(value);
      if (at != kNone && (of[i] == kNone || of[i] < at)) of[i] = at;
    });
  }
  // What reads sources alone belongs to its first reader.
  for (std::size_t i = graph.ops.size(); i-- > 0;)
    for_each_value(graph.ops[i].arguments, [&](ValueId value) {
      const OpId producer = graph.value(value).producer;
      if (producer.is_none() || !is_forward(producer.index()) || !is_forward(i)) return;
      if (modules[producer.index()] != kNone) return;
      bool reads = false;
      for_each_value(graph.op(producer).arguments,
                     [&](ValueId each) { reads = reads || layer_of(each) != kNone; });
      std::size_t& at = of[producer.index()];
      if (!reads && of[i] != kNone) at = std::min(at, of[i]);
    });
  for (std::size_t i = 0; i < graph.ops.size(); ++i)
    if (is_forward(i) && of[i] == kNone) of[i] = 0;
  // Readers of those may stand before them now.
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    if (!is_forward(i)) continue;
    for_each_value(graph.ops[i].arguments, [&](ValueId value) {
      const std::size_t at = layer_of(value);
      if (at != kNone) of[i] = std::max(of[i], at);
    });
  }
  // Backward: not behind the gradients that it reads.
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    if (is_forward(i)) continue;
    std::size_t at = modules[i] == kNone ? kNone : modules[i];
    std::size_t saved = 0;
    for_each_value(graph.ops[i].arguments, [&](ValueId value) {
      const OpId producer = graph.value(value).producer;
      if (producer.is_none()) return;
      if (is_forward(producer.index())) saved = std::max(saved, of[producer.index()]);
      else at = std::min(at, of[producer.index()]);
    });
    of[i] = at == kNone ? saved : at;
  }
  return chain;
}

}  // namespace motley::graph
