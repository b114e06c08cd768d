#pragma once

#include "motley/graph/graph.h"
#include "motley/plan/plan.h"

namespace motley::search {

/// Returns a verified plan of the graph in which a parameter read by several regions of a replica
/// (a tied weight) is kept and updated by the first one alone, if each other region reads it by
/// operators that read nothing else (a cast to 16 bits, a transposed view). The first region runs
/// these, too, once per step. So the results are sent while the first micro-batch is in flight, and
/// a gradient term returns when it is ready; otherwise both regions would sum it after the last
/// pass. Returns the same plan if nothing applies.
plan::Plan give_tied_weights(const graph::Graph& graph, const plan::Plan& plan);

}  // namespace motley::search
