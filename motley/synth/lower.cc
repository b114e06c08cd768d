#include "motley/synth/lower.h"

#include <fmt/format.h>

#include <numeric>
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

Result<program::Program> lower_some_replicas(const graph::Graph& graph, const plan::Plan& plan,
                                             const cluster::Cluster& cluster,
                                             const std::vector<std::size_t>& ranks) {
  const LowerOptions options{plan.optimizer, plan.batch_norm, plan.bucket_bytes};
  const std::vector<plan::Member> members = plan::members(plan);
  const int size = static_cast<int>(members.size());
  MOTLEY_ASSIGN(const Analysis analysis, analyse(graph, size, options));
  std::vector<std::int64_t> first_samples = {0};
  for (const plan::Member& member : members)
    first_samples.push_back(first_samples.back() + member.samples);
  program::Program program;
  program.global_batch = plan.global_batch;
  program::Group group;
  for (const std::size_t rank : ranks) {
    const plan::Member& member = members[rank];
    const Placement placement{cluster.device(member.device).name, member.samples,
                              first_samples[rank], plan.global_batch, size};
    group.members.push_back(Rank(static_cast<std::int64_t>(program.devices.size())));
    program.devices.push_back(emit_device(graph, analysis, placement, options));
  }
  if (size > 1) program.groups.push_back(std::move(group));
  return program;
}

namespace {

/// One program a replica, in replica order.
Result<program::Program> lower_replicas(const graph::Graph& graph, const plan::Plan& plan,
                                        const cluster::Cluster& cluster) {
  std::vector<std::size_t> ranks(plan::members(plan).size());
  std::iota(ranks.begin(), ranks.end(), std::size_t{0});
  MOTLEY_ASSIGN(program::Program program, lower_some_replicas(graph, plan, cluster, ranks));
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
                                              : lower_replicas(graph, plan, cluster));
  program.model_hash = plan.model_hash;
  program.plan_hash = hash_hex(plan::print_plan(plan, cluster));
  return program;
}

}  // namespace motley::synth
