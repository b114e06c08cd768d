#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "motley/graph/graph.h"
#include "motley/graph/layer_chain.h"
#include "motley/plan/plan.h"

namespace motley::search {

/// How much of its layers' forward passes a stage does again in the backward pass.
enum class Recompute : std::uint8_t {
  kNothing,
  kCheap,  ///< what costs little beside what it makes: all but products, convolutions, attention
  kAll,    ///< all but what layers give each other
};
inline constexpr std::array kRecomputes = {Recompute::kNothing, Recompute::kCheap, Recompute::kAll};

/// By operator of the graph: is it done again, and do backward passes want something of it? Never
/// what makes a value that another layer reads or that is an output, nothing of the last layer,
/// whose backward pass begins at once, and nothing that a step has once (`once`, by operator).
std::vector<char> find_done_again(const graph::Graph& graph, const graph::LayerChain& chain,
                                  const std::vector<char>& once, Recompute how);

/// Are parameters that are kept in parts gathered once a step, or again for each pass?
enum class GatheredParameters : std::uint8_t { kOnce, kForEachPass };

/// By operator: does a step of several micro-batches have it once, as it works on no samples?
/// `batch`: samples of a micro-batch. Nothing, where the graph cannot be done in several.
std::vector<char> find_once(const graph::Graph& graph, std::int64_t batch,
                            plan::BatchNormSpan batch_norm,
                            GatheredParameters gathered = GatheredParameters::kOnce);

/// The value that owns the memory of each, which may be a view, by value.
std::vector<ValueId> find_roots(const graph::Graph& graph);

}  // namespace motley::search
