#pragma once

#include <map>
#include <string>
#include <vector>

#include "motley/data/dataset.h"
#include "motley/graph/graph.h"

namespace motley::run {

/// What a model wants of its data: its inputs, in order. Samples are their first dimension.
std::vector<data::InputSpec> input_specs(const graph::Graph& graph);

/// Canonical name of each state_dict name: tied names point to the parameter that is trained.
std::map<std::string, std::string> canonical_names(const graph::Graph& graph);

}  // namespace motley::run
