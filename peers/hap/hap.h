#pragma once

#include "peers/hap/cost.h"
#include "peers/hap/program_search.h"
#include "peers/hap/rules.h"

namespace motley::peers {

/// Where HAP's paper and its released planner differ. Default: as released.
struct HapOptions {
  RuleOptions rules;
  HapCostOptions cost;
};

/// HAP as its paper describes it: units repaired, all-gathers by owner where padding costs more,
/// sufficient factors, and rules that keep the result.
HapOptions hap_as_described();

struct HapPlan {
  SpmdProgram program;
  Shares shares;  ///< that the program was searched for; none are better for it
  std::int64_t searches = 0;
};

/// HAP's alternation: shares in proportion to speed; then again and again the fastest program for
/// the shares and the best shares for the program, while the time of the program found falls.
/// Searching again for unchanged shares would repeat the answer and is left out. The released
/// planner returns the last program that was better with the last shares, which it never priced
/// together; as both steps are exact, that differs from the pair returned here in ties only.
///
/// Errors: those of make_rules and find_program; search.hap-cluster for no device, or a speed or
/// rate that is not positive and finite.
///
/// Example: `make_hap_plan(make_bert(8), make_v100_p100_cluster(8))` has a program of 1.456731 s:
/// data parallel, with the embedding split on its width.
Result<HapPlan> make_hap_plan(const ReferenceGraph& graph, const HapCluster& cluster,
                              const HapOptions& options = {});

/// Time of pure data parallelism under HAP's cost: all flops shared, every parameter and buffer
/// summed, whatever the rules leave out.
double data_parallel_seconds(const ReferenceGraph& graph, const std::vector<OperatorRules>& rules,
                             const HapCost& cost);

}  // namespace motley::peers
