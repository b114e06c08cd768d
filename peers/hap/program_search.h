#pragma once

#include <cstdint>
#include <vector>

#include "peers/hap/cost.h"
#include "peers/hap/reference_graph.h"
#include "peers/hap/rules.h"

namespace motley::peers {

/// The load of an input or parameter in one form.
struct Load {
  TensorId tensor;
  HapForm form;
};

/// A collective or local slice; the tensor is then held in both forms.
struct HapConversion {
  TensorId tensor;
  HapForm from, to;
};

/// One operator of a distributed program: its loads and conversions, then one of its triples.
struct SpmdStep {
  std::size_t op = 0;      ///< of the reference graph
  std::size_t triple = 0;  ///< of the operator's rules
  std::vector<Load> loads;
  std::vector<HapConversion> conversions;
};

struct SpmdProgram {
  std::vector<SpmdStep> steps;  ///< those the loss needs, in the reference graph's order
  LinearTime time;
  double seconds = 0;           ///< at its own shares
  std::int64_t expansions = 0;  ///< expanded states
};

/// Finds the fastest program by the given rules, under the released planner's terms: the loss ends
/// as partial sums; every tensor is made once, in one form; an activation that may communicate
/// changes its form at most once, directly before an operator that reads it, and is then held in
/// both forms; inputs and parameters are loaded by their first reader.
///
/// Exact. The released planner searches over sets of properties in order of cost. Times of steps
/// add, so neither the order of independent operators nor the path to a state matters: operators
/// are taken in the graph's order. A state is the form of each tensor still to be read, without
/// forms that no reader can use. Of equal states the cheapest continues. The minimum is the same
/// (peers/hap/README.md). O(operators x states x triples); states stay few where few tensors are
/// live at a time.
///
/// Deterministic; ties (within 1e-13) go to the state found first, earlier triples first. `rules`
/// are those of `graph` (make_rules). Error: search.hap-program (infeasible) where the rules allow
/// no program, with the operator that no program passes.
Result<SpmdProgram> find_program(const ReferenceGraph& graph,
                                 const std::vector<OperatorRules>& rules, const HapCost& cost);

}  // namespace motley::peers
