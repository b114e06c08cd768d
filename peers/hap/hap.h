#pragma once

#include "peers/hap/cost.h"
#include "peers/hap/program_search.h"
#include "peers/hap/rules.h"

namespace motley::peers {

/// Differences between HAP's paper and its released planner. Default: as released.
struct HapOptions {
  RuleOptions rules;
  HapCostOptions cost;
};

/// Returns HAP as its paper describes it: repaired units, all-gathers by owner where padding costs
/// more, sufficient factors, and rules that keep the result.
HapOptions hap_as_described();

struct HapPlan {
  SpmdProgram program;
  Shares shares;  ///< the program's shares; none are better for it
  std::int64_t searches = 0;
};

/// Runs HAP's alternation: starts with shares in proportion to speed, then alternates the fastest
/// program for the shares and the best shares for the program while the program's time falls.
/// Unchanged shares are not searched again, which would repeat the answer. The released planner
/// returns the last program that was better with the last shares, a pair that it never priced; both
/// steps are exact, so that differs from the pair here only in ties.
///
/// Errors: those of make_rules and find_program; search.hap-cluster for no device, or a speed or
/// rate that is not positive and finite.
///
/// Example: `make_hap_plan(make_bert(8), make_v100_p100_cluster(8))` has a program of 1.456731 s:
/// data parallel, with the embedding split on its width.
Result<HapPlan> make_hap_plan(const ReferenceGraph& graph, const HapCluster& cluster,
                              const HapOptions& options = {});

/// Returns the time of pure data parallelism under HAP's cost: all flops shared, every parameter
/// and buffer summed, also where the rules leave it out.
double data_parallel_seconds(const ReferenceGraph& graph, const std::vector<OperatorRules>& rules,
                             const HapCost& cost);

}  // namespace motley::peers
