#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "peers/hap/hap.h"
#include "peers/hap/named_clusters.h"

namespace motley::peers {

/// Names HAP's planners, over its own graphs: for `motley plan --planner NAME --hap-model MODEL`.
///   hap-released   what the released program decides
///   hap-described  as its paper describes it: see hap_as_described(). A* with an admissible bound
///                  and a linear program for the shares are exact, as are search and balance here,
///                  so the minima are the same (peers/hap/README.md, "Search").
std::vector<std::string> hap_planner_names();
bool is_hap_planner(std::string_view name);

/// Names workloads with their default depth: "bert12", "vit12", "vgg19", "bert-moe12".
std::vector<std::string> hap_model_names();

/// Makes a workload for `devices` devices, 32 samples on each. bert, vit and bert-moe may have 1 to
/// 1,000 layers ("bert24"). Usage error (peers.hap-model) with a suggestion and all names.
Result<ReferenceGraph> make_named_model(std::string_view name, std::int64_t devices);

/// A plan with other prices of the same graph and cluster by HAP's cost. Seconds per step.
struct HapAnswer {
  HapPlan plan;
  double lower_bound = 0;         ///< all flops at the speed of all devices, nothing moved
  double equal_split = 0;         ///< pure data parallelism with even shares
  double proportional_split = 0;  ///< with shares in proportion to speed
  double best_single = 0;         ///< the fastest device alone
  std::vector<std::string> why;
};

/// Errors: those of make_hap_plan.
Result<HapAnswer> ask_hap(std::string_view planner, const ReferenceGraph& graph,
                          const NamedCluster& cluster);

}  // namespace motley::peers
