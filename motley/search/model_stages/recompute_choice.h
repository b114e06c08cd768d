#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "motley/graph/graph.h"
#include "motley/graph/layer_chain.h"
#include "motley/plan/plan.h"

namespace motley::search {

/// How much of its layers' forward passes a stage recomputes.
enum class Recompute : std::uint8_t {
  kNothing,
  kCheap,  ///< cheap for their output: all but products, convolutions, attention
  kAll,    ///< all but the values passed between layers
};
inline constexpr std::array kRecomputes = {Recompute::kNothing, Recompute::kCheap, Recompute::kAll};

/// Finds, by operator, whether it is recomputed and needed by a backward pass. Never: operators
/// whose value another layer reads or that is an output, the last layer, whose backward pass
/// follows at once, and operators that a step runs once (`once`, by operator).
std::vector<char> find_done_again(const graph::Graph& graph, const graph::LayerChain& chain,
                                  const std::vector<char>& once, Recompute how);

/// How often sharded parameters are gathered: once per step, or for each pass.
enum class GatheredParameters : std::uint8_t { kOnce, kForEachPass };

/// Finds, by operator, whether a step of several micro-batches runs it once, as it is independent
/// of samples. `batch`: samples of a micro-batch. None if the graph cannot run in several.
std::vector<char> find_once(const graph::Graph& graph, std::int64_t batch,
                            plan::BatchNormSpan batch_norm,
                            GatheredParameters gathered = GatheredParameters::kOnce);

/// Returns, by value, the value that owns its memory; a view's base.
std::vector<ValueId> find_roots(const graph::Graph& graph);

}  // namespace motley::search
