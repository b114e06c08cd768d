#pragma once

#include <map>
#include <string>
#include <vector>

#include "motley/data/dataset.h"
#include "motley/graph/graph.h"

namespace motley::run {

/// Returns a model's inputs, in order. Their first dimension is the samples.
std::vector<data::InputSpec> input_specs(const graph::Graph& graph);

/// Returns the canonical name of each state_dict name: tied names map to the trained parameter.
std::map<std::string, std::string> canonical_names(const graph::Graph& graph);

}  // namespace motley::run
