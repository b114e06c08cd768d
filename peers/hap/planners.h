#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "peers/hap/hap.h"
#include "peers/hap/named_clusters.h"

namespace motley::peers {

/// HAP's planners by name, over its own graphs: what `motley plan --planner NAME --hap-model MODEL`
/// asks.
///   hap-released   what the released program decides
///   hap-described  what its paper says: see hap_as_described(). A* with an admissible bound and a
///                  linear program for the shares are exact, as the search and the balance here
///                  are; the answers are the same minima (peers/hap/README.md, "Search").
std::vector<std::string> hap_planner_names();
bool is_hap_planner(std::string_view name);

/// Workloads by name, their default depth first: "bert12", "vit12", "vgg19", "bert-moe12".
std::vector<std::string> hap_model_names();

/// The workload for so many devices, 32 samples on each. bert, vit and bert-moe may have 1 to 1,000
/// layers ("bert24"). Usage error (peers.hap-model) with a suggestion and all names.
Result<ReferenceGraph> make_named_model(std::string_view name, std::int64_t devices);

/// A plan beside what else HAP's cost says of the same graph and cluster. Seconds of a step.
struct HapAnswer {
  HapPlan plan;
  double lower_bound = 0;         ///< all flops at the speed of all devices, nothing moved
  double equal_split = 0;         ///< pure data parallelism with even shares
  double proportional_split = 0;  ///< with shares in proportion to speed
  double best_single = 0;         ///< the fastest device alone
  std::vector<std::string> why;
};

/// Asks a planner of hap_planner_names(). Errors: those of make_hap_plan.
Result<HapAnswer> ask_hap(std::string_view planner, const ReferenceGraph& graph,
                          const NamedCluster& cluster);

}  // namespace motley::peers
