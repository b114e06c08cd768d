#pragma once

#include <vector>

#include "motley/graph/graph.h"
#include "motley/search/spmd/space.h"
#include "motley/synth/step/sharding.h"

namespace motley::search {

/// A value that is brought from the form in which it is made into another.
struct FormChange {
  ValueId value;
  graph::Form from, to;
  Reader reader;  ///< the first that wants it so
};

/// All that a sharding changes: each form of a value once, whoever wants it.
std::vector<FormChange> find_changes(const graph::Graph& graph, const SpmdSpace& space,
                                     const synth::Sharding& sharding);

}  // namespace motley::search
