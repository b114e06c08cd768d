#include "motley/synth/ranks/lower_evaluation.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "motley/program/program_verify.h"
#include "motley/synth/ranks/lower_sharded.h"
#include "motley/synth/ranks/sample_sharding.h"

namespace motley::synth {
namespace {

/// Keeps the evaluation graph's parameters in the forms of the training graph's of the same names.
void keep_as_trained(const TrainedAndEvaluated& graphs, const Sharding& trained,
                     Sharding& sharding) {
  std::map<std::string, graph::Form> forms;
  for (const ValueId id : graph::values_with_role(graphs.training, graph::ValueRole::kParameter))
    forms[graphs.training.value(id).name] = trained.sources[id.index()];
  for (const ValueId id : graph::values_with_role(graphs.evaluation, graph::ValueRole::kParameter))
    if (const auto form = forms.find(graphs.evaluation.value(id).name); form != forms.end())
      sharding.sources[id.index()] = form->second;
}

}  // namespace

Result<program::Program> lower_evaluation(const TrainedAndEvaluated& graphs,
                                          const TrainedPlan& trained, std::int64_t samples) {
  Sharding sharding;
  sharding.devices = trained.sharding.devices;
  sharding.shares = trained.sharding.shares;
  sharding.batch = samples;
  MOTLEY_RETURN_IF_ERROR(
      check_devices(graphs.evaluation, sharding.devices.size(), plan::BatchNormMode::kGlobal));
  const std::vector<graph::ShardingRule> rules = spread_samples(graphs.evaluation, sharding);
  keep_as_trained(graphs, trained.sharding, sharding);
  LowerOptions options;
  options.bucket_bytes = trained.plan.bucket_bytes;
  options.updates = trained.plan.updates;
  MOTLEY_ASSIGN(program::Program program,
                lower_ranks(graphs.evaluation, sharding, rules, all_ranks(sharding), options));
  MOTLEY_RETURN_IF_ERROR(program::verify_program(program, graphs.evaluation.name));
  program.model_hash = trained.plan.model_hash;
  return program;
}

}  // namespace motley::synth
