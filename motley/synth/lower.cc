#include "motley/synth/lower.h"

#include <string>
#include <utility>

#include "motley/base/check.h"
#include "motley/base/random.h"
#include "motley/program/program_text.h"
#include "motley/synth/ranks/exchange_methods.h"
#include "motley/synth/ranks/sample_sharding.h"
#include "motley/synth/ranks/sharded_plan.h"
#include "motley/synth/stages/lower_stages.h"
#include "motley/synth/state/carried.h"

namespace motley::synth {
namespace {

Result<program::Program> lower_found(const graph::Graph& graph, const RuledSharding& found,
                                     const std::vector<std::size_t>& ranks,
                                     const LowerOptions& options) {
  MOTLEY_RETURN_IF_ERROR(check_devices(graph, found.sharding.devices.size(), options.batch_norm));
  return lower_ranks(graph, found.sharding, found.rules, ranks, options);
}

RuledSharding spread_equally(const graph::Graph& graph, const EqualReplicas& replicas,
                             plan::BatchNormMode batch_norm) {
  MOTLEY_CHECK(replicas.samples > 0 && replicas.ranks > 0);
  MOTLEY_CHECK(replicas.samples % replicas.micro_batches == 0);
  RuledSharding made;
  for (int rank = 0; rank < replicas.ranks; ++rank)
    made.sharding.devices.push_back(std::to_string(rank));
  made.sharding.shares.assign(made.sharding.devices.size(), 1.0);
  made.sharding.batch = replicas.samples / replicas.micro_batches * replicas.ranks;
  made.sharding.micro_batches = replicas.micro_batches;
  made.rules = spread_samples(graph, made.sharding, batch_norm);
  return made;
}

}  // namespace

Result<program::Program> lower(const graph::Graph& graph, const plan::Plan& plan,
                               const cluster::Cluster& cluster) {
  const auto lower_plan = [&]() -> Result<program::Program> {
    if (plan::has_stages(plan))
      return lower_stages(graph, plan, cluster, options_of(plan), {plan::members(plan)});
    MOTLEY_ASSIGN(const RuledSharding found, find_ruled_sharding(graph, plan, cluster));
    MOTLEY_ASSIGN(program::Program made,
                  lower_found(graph, found, all_ranks(found.sharding), options_of(plan)));
    MOTLEY_RETURN_IF_ERROR(set_methods(made, found.sharding.exchanges));
    return with_carried(std::move(made), plan.carried);
  };
  MOTLEY_ASSIGN(program::Program program, lower_plan());
  MOTLEY_RETURN_IF_ERROR(program::verify_program(program, graph.name));
  program.model_hash = plan.model_hash;
  program.plan_hash = hash_hex(plan::print_plan(plan, cluster));
  return program;
}

Result<RankKinds> lower_kinds(const graph::Graph& graph, const plan::Plan& plan,
                              const cluster::Cluster& cluster, const std::vector<int>& classes) {
  MOTLEY_ASSIGN(const RuledSharding found, find_ruled_sharding(graph, plan, cluster));
  const Sharding& sharding = found.sharding;
  MOTLEY_RETURN_IF_ERROR(check_devices(graph, sharding.devices.size(), plan.batch_norm));
  MOTLEY_ASSIGN(const auto accumulation, find_accumulation(graph, sharding, plan.batch_norm_span));
  RankKinds kinds = lower_kinds(graph, sharding, found.rules, classes, options_of(plan),
                                accumulation ? &*accumulation : nullptr);
  MOTLEY_RETURN_IF_ERROR(set_methods(kinds.program, sharding.exchanges));
  kinds.program = with_carried(std::move(kinds.program), plan.carried);
  return kinds;
}

int replicas_that_share(const graph::Graph& graph, plan::BatchNormMode batch_norm) {
  return check_devices(graph, 2, batch_norm) ? 2 : 1;
}

Result<program::Program> lower_equal(const graph::Graph& graph, const EqualReplicas& replicas,
                                     const LowerOptions& options) {
  const RuledSharding made = spread_equally(graph, replicas, options.batch_norm);
  return lower_found(graph, made, all_ranks(made.sharding), options);
}

Result<program::DeviceProgram> lower_first(const graph::Graph& graph, const EqualReplicas& replicas,
                                           const LowerOptions& options) {
  const RuledSharding made = spread_equally(graph, replicas, options.batch_norm);
  MOTLEY_ASSIGN(program::Program program, lower_found(graph, made, {0}, options));
  return std::move(program.devices.front());
}

}  // namespace motley::synth
