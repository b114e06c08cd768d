#include "motley/synth/lower.h"

#include <numeric>
#include <string>
#include <utility>

#include "motley/base/check.h"
#include "motley/base/random.h"
#include "motley/program/program_text.h"
#include "motley/synth/accumulation.h"
#include "motley/synth/sample_sharding.h"
#include "motley/synth/sharded_plan.h"

namespace motley::synth {
namespace {

Result<program::Program> lower_ranks(const graph::Graph& graph, const RuledSharding& found,
                                     const std::vector<std::size_t>& ranks,
                                     const LowerOptions& options) {
  const Sharding& sharding = found.sharding;
  MOTLEY_RETURN_IF_ERROR(check_devices(graph, sharding.devices.size(), options.batch_norm));
  if (sharding.micro_batches == 1)
    return lower_some_ranks(graph, sharding, found.rules, ranks, options);
  MOTLEY_ASSIGN(const Accumulation accumulation,
                accumulate(graph, sharding.batch * sharding.micro_batches, sharding.micro_batches));
  return lower_some_ranks(graph, sharding, found.rules, ranks, options, &accumulation);
}

std::vector<std::size_t> all_ranks(const Sharding& sharding) {
  std::vector<std::size_t> ranks(sharding.devices.size());
  std::iota(ranks.begin(), ranks.end(), std::size_t{0});
  return ranks;
}

LowerOptions options_of(const plan::Plan& plan) {
  return {plan.optimizer, plan.batch_norm, plan.bucket_bytes};
}

RuledSharding spread_equally(const graph::Graph& graph, const EqualReplicas& replicas,
                             plan::BatchNormMode batch_norm) {
  MOTLEY_CHECK(replicas.samples > 0 && replicas.ranks > 0);
  RuledSharding made;
  for (int rank = 0; rank < replicas.ranks; ++rank)
    made.sharding.devices.push_back(std::to_string(rank));
  made.sharding.shares.assign(made.sharding.devices.size(), 1.0);
  made.sharding.batch = replicas.samples * replicas.ranks;
  made.rules = spread_samples(graph, made.sharding, batch_norm);
  return made;
}

}  // namespace

Result<program::Program> lower(const graph::Graph& graph, const plan::Plan& plan,
                               const cluster::Cluster& cluster) {
  MOTLEY_ASSIGN(const RuledSharding found, find_ruled_sharding(graph, plan, cluster));
  MOTLEY_ASSIGN(program::Program program,
                lower_ranks(graph, found, all_ranks(found.sharding), options_of(plan)));
  MOTLEY_RETURN_IF_ERROR(set_methods(program, found.sharding.exchanges));
  MOTLEY_RETURN_IF_ERROR(program::verify_program(program, graph.name));
  program.model_hash = plan.model_hash;
  program.plan_hash = hash_hex(plan::print_plan(plan, cluster));
  return program;
}

Result<program::Program> lower_some_ranks(const graph::Graph& graph, const plan::Plan& plan,
                                          const cluster::Cluster& cluster,
                                          const std::vector<std::size_t>& ranks) {
  MOTLEY_ASSIGN(const RuledSharding found, find_ruled_sharding(graph, plan, cluster));
  return lower_ranks(graph, found, ranks, options_of(plan));
}

Result<program::Program> lower_equal(const graph::Graph& graph, const EqualReplicas& replicas,
                                     const LowerOptions& options) {
  const RuledSharding made = spread_equally(graph, replicas, options.batch_norm);
  return lower_ranks(graph, made, all_ranks(made.sharding), options);
}

Result<program::DeviceProgram> lower_first(const graph::Graph& graph, const EqualReplicas& replicas,
                                           const LowerOptions& options) {
  const RuledSharding made = spread_equally(graph, replicas, options.batch_norm);
  MOTLEY_ASSIGN(program::Program program, lower_ranks(graph, made, {0}, options));
  return std::move(program.devices.front());
}

}  // namespace motley::synth
