#include "motley/search/model_stages/recompute_choice.h"

#include <algorithm>

#include "motley/graph/reach.h"
#include "motley/graph/work.h"
#include "motley/synth/ranks/accumulation.h"
#include "motley/synth/ranks/recomputation.h"

namespace motley::search {
namespace {

/// Operations per element read or written, above which an operator is not cheap: the inner size of
/// a matrix product is above it, elementwise operators are below.
constexpr double kCheapAtMost = 8;
constexpr std::int64_t kSomeBatch = 32;

bool is_cheap(const graph::Graph& graph, std::size_t op) {
  const graph::Sizes sizes{{"batch", kSomeBatch}};
  std::int64_t elements = 0;
  const auto add = [&](ValueId value) {
    elements += graph::value_elements(graph.value(value), sizes);
  };
  std::for_each(graph.ops[op].outputs.begin(), graph.ops[op].outputs.end(), add);
  graph::for_each_value(graph.ops[op].arguments, add);
  return graph::op_work(graph, OpId(static_cast<std::int64_t>(op)), sizes).flops.value <=
         kCheapAtMost * static_cast<double>(elements);
}

/// Finds, by value that owns memory, whether it may be freed after its layer's forward pass.
std::vector<char> find_own_values(const graph::Graph& graph, const graph::LayerChain& chain,
                                  const std::vector<ValueId>& roots) {
  std::vector<char> is_own(graph.values.size(), 1);
  const auto layer_of = [&](ValueId root) {
    return chain.of_op[graph.value(root).producer.index()];
  };
  for (std::size_t i = 0; i < graph.ops.size(); ++i)
    graph::for_each_value(graph.ops[i].arguments, [&](ValueId value) {
      const ValueId root = roots[value.index()];
      if (!graph.value(root).producer.is_none() && layer_of(root) != chain.of_op[i])
        is_own[root.index()] = 0;
    });
  for (const graph::Output& output : graph.outputs)
    if (graph::is_wanted(output)) is_own[roots[output.value.index()].index()] = 0;
  return is_own;
}

}  // namespace

std::vector<ValueId> find_roots(const graph::Graph& graph) {
  std::vector<ValueId> roots;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const ValueId id(static_cast<std::int64_t>(v));
    roots.push_back(id);
    const OpId producer = graph.values[v].producer;
    if (producer.is_none() || !graph::is_view(graph.op(producer).name)) continue;
    const auto* base = std::get_if<ValueId>(&graph.op(producer).arguments[0].value);
    if (base != nullptr) roots.back() = roots[base->index()];
  }
  return roots;
}

std::vector<char> find_done_again(const graph::Graph& graph, const graph::LayerChain& chain,
                                  const std::vector<char>& once, Recompute how) {
  std::vector<char> is_again(graph.ops.size(), 0);
  if (how == Recompute::kNothing) return is_again;
  const std::vector<ValueId> roots = find_roots(graph);
  const std::vector<char> is_own = find_own_values(graph, chain, roots);
  std::vector<char> may_be(graph.ops.size(), 0);
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const graph::Op& op = graph.ops[i];
    may_be[i] =
        op.direction == graph::Direction::kForward && once[i] == 0 &&
        chain.of_op[i] + 1 < chain.names.size() && (how == Recompute::kAll || is_cheap(graph, i)) &&
        std::all_of(op.outputs.begin(), op.outputs.end(),
                    [&](ValueId output) { return is_own[roots[output.index()].index()] != 0; });
  }
  // Operands of the backward pass, and of recomputed operators.
  const graph::Reach live = graph::find_live(graph);
  for (std::size_t i = graph.ops.size(); i-- > 0;) {
    const bool reads = graph.ops[i].direction == graph::Direction::kBackward || is_again[i] != 0;
    if (!live.holds(i) || !reads) continue;
    graph::for_each_value(graph.ops[i].arguments, [&](ValueId value) {
      const OpId producer = graph.value(value).producer;
      if (!producer.is_none() && may_be[producer.index()] != 0) is_again[producer.index()] = 1;
    });
  }
  return is_again;
}

std::vector<char> find_once(const graph::Graph& graph, std::int64_t batch,
                            plan::BatchNormSpan batch_norm, GatheredParameters gathered) {
  constexpr std::int64_t kTimes = 2;
  std::vector<int> copies(graph.ops.size(), 0);
  auto found = synth::accumulate(graph, kTimes * batch, kTimes, batch_norm);
  if (found && gathered == GatheredParameters::kForEachPass) {
    synth::GatheredAgain all;
    for (const ValueId id : graph::values_with_role(graph, graph::ValueRole::kParameter))
      all.parameters.insert(graph.value(id).name);
    found = synth::recompute(*std::move(found), {{{}}, {0, 0}, {{std::move(all)}}});
  }
  if (found)
    for (const synth::Copy& copy : found->copies)
      if (!copy.of.is_none()) ++copies[copy.of.index()];
  std::vector<char> once;
  for (const int each : copies) once.push_back(each == 1 ? 1 : 0);
  return once;
}

}  // namespace motley::search
