#include "motley/synth/lower.h"

#include <fmt/format.h>

#include <utility>

#include "motley/base/random.h"
#include "motley/program/program_text.h"
#include "motley/synth/lower_device.h"
#include "motley/synth/sharded_plan.h"

namespace motley::synth {

Result<Analysis> analyse(const graph::Graph& graph, int ranks, const LowerOptions& options) {
  Analysis analysis;
  const Strictness strictness = ranks == 1 ? Strictness::kLenient : Strictness::kExact;
  MOTLEY_ASSIGN(analysis.forms, assign_forms(graph, options.batch_norm, strictness));
  analysis.schedule = ranks == 1 ? schedule_alone(graph)
                                 : schedule_group(graph, analysis.forms, options.bucket_bytes);
  return analysis;
}

Result<program::DeviceProgram> lower_device(const graph::Graph& graph, const Placement& placement,
                                            const LowerOptions& options) {
  MOTLEY_ASSIGN(const Analysis analysis, analyse(graph, placement.ranks, options));
  return emit_device(graph, analysis, placement, options);
}

namespace {

/// One program a replica, in replica order.
Result<program::Program> lower_replicas(const graph::Graph& graph, const plan::Plan& plan,
                                        const cluster::Cluster& cluster,
                                        const LowerOptions& options) {
  const std::vector<plan::Member> members = plan::members(plan);
  const int ranks = static_cast<int>(members.size());
  MOTLEY_ASSIGN(const Analysis analysis, analyse(graph, ranks, options));
  program::Program program;
  program.global_batch = plan.global_batch;
  std::int64_t first_sample = 0;
  for (const plan::Member& member : members) {
    const Placement placement{cluster.device(member.device).name, member.samples, first_sample,
                              plan.global_batch, ranks};
    program.devices.push_back(emit_device(graph, analysis, placement, options));
    first_sample += member.samples;
  }
  if (ranks > 1) {
    program::Group group;
    for (int rank = 0; rank < ranks; ++rank) group.members.push_back(Rank(rank));
    program.groups.push_back(std::move(group));
  }
  MOTLEY_RETURN_IF_ERROR(program::verify_program(program, graph.name));
  return program;
}

Result<program::Program> lower_region(const graph::Graph& graph, const plan::Plan& plan,
                                      const cluster::Cluster& cluster,
                                      const LowerOptions& options) {
  MOTLEY_ASSIGN(const Sharding sharding, find_sharding(graph, plan, cluster));
  return lower_sharded(graph, sharding, options);
}

}  // namespace

Result<program::Program> lower(const graph::Graph& graph, const plan::Plan& plan,
                               const cluster::Cluster& cluster) {
  const LowerOptions options{plan.optimizer, plan.batch_norm, plan.bucket_bytes};
  MOTLEY_ASSIGN(program::Program program, plan::find_shared_region(plan) != nullptr
                                              ? lower_region(graph, plan, cluster, options)
                                              : lower_replicas(graph, plan, cluster, options));
  program.model_hash = plan.model_hash;
  program.plan_hash = hash_hex(plan::print_plan(plan, cluster));
  return program;
}

}  // namespace motley::synth
