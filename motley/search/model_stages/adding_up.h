#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "motley/cost/cost_model.h"
#include "motley/graph/graph.h"
#include "motley/graph/layer_chain.h"
#include "motley/plan/operator_split.h"

namespace motley::search {

/// One of the devices that share a model's operators.
struct SharingDevice {
  std::string name;
  double share = 1;  ///< of all
  /// How an operator is split; null: not at all.
  std::function<const plan::OperatorSplit*(std::size_t op)> split_of;
};

/// Returns, by layer, a device's seconds to accumulate another micro-batch's gradients: of each
/// whole parameter, or of its part if the operator that makes the gradient is split. 0 if unknown.
std::vector<Seconds> find_adding_up(const graph::Graph& graph, const graph::LayerChain& chain,
                                    const cost::CostModel& model, const SharingDevice& device);

}  // namespace motley::search
