#include "motley/synth/lower.h"

#include <fmt/format.h>

#include <utility>

#include "motley/base/random.h"
#include "motley/program/program_text.h"
#include "motley/synth/lower_device.h"

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

Result<program::Program> lower(const graph::Graph& graph, const plan::Plan& plan,
                               const cluster::Cluster& cluster) {
  const LowerOptions options{plan.optimizer, plan.batch_norm, plan.bucket_bytes};
  const int ranks = static_cast<int>(plan.replicas.size());
  MOTLEY_ASSIGN(const Analysis analysis, analyse(graph, ranks, options));
  program::Program program;
  program.model_hash = plan.model_hash;
  program.plan_hash = hash_hex(plan::print_plan(plan, cluster));
  program.global_batch = plan.global_batch;
  std::int64_t first_sample = 0;
  for (const plan::Replica& replica : plan.replicas) {
    const cluster::Device& device = cluster.device(plan::replica_device(replica));
    const Placement placement{device.name, replica.samples, first_sample, plan.global_batch, ranks};
    program.devices.push_back(emit_device(graph, analysis, placement, options));
    first_sample += replica.samples;
  }
  if (ranks > 1) {
    program::Group group;
    for (int rank = 0; rank < ranks; ++rank) group.members.push_back(Rank(rank));
    program.groups.push_back(std::move(group));
  }
  MOTLEY_RETURN_IF_ERROR(program::verify_program(program, graph.name));
  return program;
}

}  // namespace motley::synth
