#pragma once

#include <vector>

#include "motley/graph/graph.h"
#include "motley/search/spmd/space.h"
#include "motley/synth/step/sharding.h"

namespace motley::search {

/// A change of a value from the form in which it is made.
struct FormChange {
  ValueId value;
  graph::Form from, to;
  Reader reader;  ///< the first that needs this form
};

/// Finds all changes of a sharding; each form of a value once, for any number of readers.
std::vector<FormChange> find_changes(const graph::Graph& graph, const SpmdSpace& space,
                                     const synth::Sharding& sharding);

}  // namespace motley::search
