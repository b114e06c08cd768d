#pragma once

#include <cstdint>
#include <vector>

#include "peers/hap/cost.h"
#include "peers/hap/reference_graph.h"
#include "peers/hap/rules.h"

namespace motley::peers {

/// A tensor that is an input or a parameter, loaded in one form.
struct Load {
  TensorId tensor;
  HapForm form;
};

/// A collective or local slice: from then on the tensor is held in both forms.
struct HapConversion {
  TensorId tensor;
  HapForm from, to;
};

/// One operator of a distributed program: first its loads and conversions, then one of its triples.
struct SpmdStep {
  std::size_t op = 0;      ///< of the reference graph
  std::size_t triple = 0;  ///< of the operator's rules
  std::vector<Load> loads;
  std::vector<HapConversion> conversions;
};

/// The same program for all devices.
struct SpmdProgram {
  std::vector<SpmdStep> steps;  ///< in the order of the reference graph; those the loss needs
  LinearTime time;
  double seconds = 0;           ///< under the shares it was found for
  std::int64_t expansions = 0;  ///< states from which the search went on
};

/// The fastest program of the given rules, under the terms of the released planner: the loss is in
/// partial sums at the end; every tensor is made once, in one form; an activation that may
/// communicate changes its form at most once, directly before an operator that reads it, and is
/// held in both forms from then on; inputs and parameters are loaded by their first reader.
///
/// Exact. The released planner searches over sets of properties in order of cost. Times of steps
/// add up, so neither the order of independent operators nor how a state was reached matters:
/// operators are taken in the order of the graph, and a state is what each tensor that is still to
/// be read is held as, without the forms that no reader can use. Of equal states the cheapest goes
/// on. The answer is the same minimum (peers/hap/README.md). O(operators x states x triples);
/// states stay few where few tensors are alive at a time.
///
/// Deterministic; ties (within 1e-13) go to the state found first, earlier triples first. `rules`
/// are those of `graph` (make_rules). Error: search.hap-program (infeasible) where the rules allow
/// no program; it names the operator that none passes.
Result<SpmdProgram> find_program(const ReferenceGraph& graph,
                                 const std::vector<OperatorRules>& rules, const HapCost& cost);

}  // namespace motley::peers
