#pragma once

#include "motley/graph/graph.h"
#include "motley/plan/plan.h"

namespace motley::search {

/// A verified plan of the graph's, changed so that a parameter which several regions of a replica
/// read (a tied weight) is kept and updated by the first of them alone, wherever each other one
/// reads it by operators that read nothing else (a cast to 16 bits, a transposed view): these are
/// done by the first one, too, once a step. So what is made of the weight crosses while the first
/// micro-batch is on its way, and a term of its gradient when it is there; otherwise both would sum
/// it when the last pass is over. The same plan where there is nothing of that kind.
plan::Plan give_tied_weights(const graph::Graph& graph, const plan::Plan& plan);

}  // namespace motley::search
