#include "motley/search/model_stages/layered_graph.h"

#include <algorithm>
#include <set>

#include "motley/graph/reach.h"
#include "motley/graph/work.h"

namespace motley::search {

LayeredGraph::LayeredGraph(const graph::Graph& whole, const plan::Problem& problem)
    : whole_(whole),
      least_batch_(std::max<std::int64_t>(1, problem.min_samples)),
      batch_norm_(problem.batch_norm_span),
      chain_(graph::find_layer_chain(whole)),
      depths_(find_depths(whole)),
      all_(depths_ ? graph::ShortGraph() : graph::shorten(whole, chain_, chain_.names.size())) {
  for (std::size_t how = 0; how < kRecomputes.size(); ++how)
    done_again_[how] =
        find_done_again(whole, chain_, once(GatheredParameters::kOnce), kRecomputes[how]);
}

const std::vector<char>& LayeredGraph::once(GatheredParameters gathered) const {
  const auto [known, is_new] = once_.try_emplace(gathered);
  if (is_new) known->second = find_once(whole_, least_batch_, batch_norm_, gathered);
  return known->second;
}

LayerParameters find_layer_parameters(const graph::Graph& graph, const graph::LayerChain& chain) {
  const std::vector<ValueId> roots = find_roots(graph);
  const graph::Reach live = graph::find_live(graph);
  std::map<ValueId, std::set<std::size_t>> readers;  // layers, by parameter
  for (std::size_t i = 0; i < graph.ops.size(); ++i)
    if (live.holds(i))
      graph::for_each_value(graph.ops[i].arguments, [&](ValueId value) {
        const ValueId root = roots[value.index()];
        if (graph.value(root).role == graph::ValueRole::kParameter)
          readers[root].insert(chain.of_op[i]);
      });
  LayerParameters found{std::vector<double>(chain.names.size(), 0), std::nullopt};
  for (const auto& [parameter, layers] : readers) {
    found.bytes[*layers.begin()] +=
        static_cast<double>(graph::value_bytes(graph.value(parameter), {}));
    if (layers.size() > 1 && !found.tied) found.tied = std::pair(*layers.begin(), *layers.rbegin());
  }
  return found;
}

std::vector<Bytes> find_layer_outputs(const graph::Graph& graph, const graph::LayerChain& chain,
                                      std::int64_t samples) {
  std::vector<Bytes> outputs(chain.names.size(), Bytes(0));
  const std::vector<ValueId> roots = find_roots(graph);
  const graph::Reach live = graph::find_live(graph);
  const graph::Sizes small{{"batch", samples}}, large{{"batch", 2 * samples}};
  std::vector<std::size_t> last(graph.values.size(), 0);  // layer that reads it
  for (std::size_t i = 0; i < graph.ops.size(); ++i)
    if (live.holds(i) && graph.ops[i].direction == graph::Direction::kForward)
      graph::for_each_value(graph.ops[i].arguments, [&](ValueId value) {
        std::size_t& layer = last[roots[value.index()].index()];
        layer = std::max(layer, chain.of_op[i]);
      });
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const graph::Value& value = graph.values[v];
    const bool is_made = roots[v].index() == v && !value.producer.is_none() &&
                         live.holds(value.producer.index()) &&
                         graph.op(value.producer).direction == graph::Direction::kForward;
    if (!is_made) continue;
    const Bytes bytes((graph::value_bytes(value, large) - graph::value_bytes(value, small)) /
                      samples);
    for (std::size_t l = chain.of_op[value.producer.index()]; l < last[v]; ++l) outputs[l] += bytes;
  }
  return outputs;
}

}  // namespace motley::search
