#pragma once

#include "motley/search/hap/balance.h"
#include "motley/search/hap/cost.h"
#include "motley/search/hap/program_search.h"
#include "motley/search/hap/rules.h"

namespace motley::search {

/// Where HAP's paper and its released planner differ. Default: as released.
struct HapOptions {
  RuleOptions rules;
  CostOptions cost;
};

/// HAP as its paper describes it: units repaired, all-gathers by owner where padding costs more,
/// sufficient factors, and rules that keep the result.
HapOptions hap_as_described();

struct HapPlan {
  SpmdProgram program;  ///< its `seconds` are under `searched_shares`
  Shares searched_shares;
  Shares shares;       ///< the balance of `program`; returned with it, though it may be new
  double seconds = 0;  ///< of `program` under `shares`, which the released planner never asks
  std::int64_t searches = 0;
};

/// HAP's alternation: shares in proportion to speed; then again and again the fastest program for
/// the shares and the best shares for the program, until the time that the search reports improves
/// no more. Searching again for shares that were just searched would repeat the answer and is left
/// out. Errors: those of make_rules and find_program; search.hap-cluster for no device, or a speed
/// or rate that is not positive and finite.
///
/// Example: `make_hap_plan(make_bert(8), make_v100_p100_cluster(8))` has a program of 1.456731 s:
/// data parallel, with the embedding split on its width.
Result<HapPlan> make_hap_plan(const ReferenceGraph& graph, const HapCluster& cluster,
                              const HapOptions& options = {});

/// Time of pure data parallelism under HAP's cost: all flops shared, every parameter and buffer
/// summed, whatever the rules leave out.
double data_parallel_seconds(const ReferenceGraph& graph, const std::vector<OperatorRules>& rules,
                             const HapCost& cost);

}  // namespace motley::search
