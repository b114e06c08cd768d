#include "motley/control/training/evaluating.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "motley/base/text.h"
#include "motley/cost/profile_cost.h"
#include "motley/program/effects.h"
#include "motley/program/memory.h"
#include "motley/synth/ranks/lower_evaluation.h"
#include "motley/synth/ranks/sharded_plan.h"
#include "motley/synth/stages/stage_evaluation.h"

namespace motley::control {
namespace {

using program::DeviceProgram;

Bytes persistent_bytes(const DeviceProgram& program) {
  Bytes total(0);
  for (const program::Buffer& buffer : program.buffers)
    if (program::is_persistent(buffer.kind)) total += buffer.bytes();
  return total;
}

/// Returns a device's memory: training's persistent buffers and the evaluation's own.
Bytes evaluation_peak(const DeviceProgram& training, const DeviceProgram& evaluation) {
  std::set<std::string> kept;
  for (const program::Buffer& buffer : training.buffers)
    if (program::is_persistent(buffer.kind)) kept.insert(buffer.name);
  Bytes own(0);
  for (const program::Buffer& buffer : evaluation.buffers)
    if (program::is_persistent(buffer.kind) && !kept.contains(buffer.name)) own += buffer.bytes();
  return persistent_bytes(training) + own + program::find_memory_peak(evaluation).total -
         persistent_bytes(evaluation);
}

/// Names the first device that lacks memory for a program, and its need; "": none.
std::string find_too_small(const Inputs& inputs, const Planned& planned,
                           const std::vector<program::Program>& evaluations) {
  const std::vector<plan::Member> members = plan::members(planned.plan);
  for (const program::Program& evaluation : evaluations) {
    for (std::size_t rank = 0; rank < members.size(); ++rank) {
      const cluster::Device& device = inputs.cluster.device(members[rank].device);
      const Bytes peak = cost::with_framework(
          device, evaluation_peak(planned.program->devices[rank], evaluation.devices[rank]));
      if (device.memory && peak > *device.memory)
        return fmt::format("{} needs {} to evaluate {} samples, has {}", device.name,
                           format_bytes(peak), evaluation.devices[rank].samples,
                           format_bytes(*device.memory));
    }
  }
  return "";
}

struct Batches {
  std::int64_t samples, batch, least;

  /// Samples of the last batch. Too few for the model, they join the last whole batch.
  std::int64_t rest() const {
    const std::int64_t left = samples % batch;
    return left > 0 && left < least ? left + batch : left;
  }
};

template <typename Lower>
Result<std::vector<program::Program>> lower_batches(const Lower& lower, const Batches& batches) {
  std::vector<program::Program> programs;
  MOTLEY_ASSIGN(programs.emplace_back(), lower(batches.batch));
  if (batches.rest() > 0) {
    MOTLEY_ASSIGN(programs.emplace_back(), lower(batches.rest()));
  }
  return programs;
}

std::vector<std::string> metric_outputs(const graph::Graph& graph) {
  std::vector<std::string> names;
  for (const graph::Output& output : graph.outputs)
    if (output.kind == graph::OutputKind::kMetric) names.push_back(output.name);
  return names;
}

Result<void> check_watched(const run::EvaluationJob& job) {
  std::vector<std::string> known = run::EvaluationSums(job.outputs).names();
  known.insert(known.begin(), "loss");
  if (std::find(known.begin(), known.end(), job.watch.metric) != known.end()) return {};
  return usage_error(
      "run.watch", fmt::format("--best: the model has no metric '{}', only {}{}", job.watch.metric,
                               join(known, ", "), suggestion_clause(job.watch.metric, known)));
}

}  // namespace

Result<PreparedEvaluation> prepare_evaluation(const Inputs& inputs, const Planned& planned,
                                              const EvaluationChoices& choices,
                                              std::int64_t samples) {
  const auto& graph = inputs.model->evaluation;
  if (graph == nullptr)
    return usage_error("cli.no-evaluation", inputs.model_path +
                                                ": holds no graph to evaluate by; export it again "
                                                "with python -m motley.export");
  PreparedEvaluation prepared;
  prepared.job.data = choices.data;
  prepared.job.samples = samples;
  prepared.job.every = choices.every;
  prepared.job.patience = choices.patience;
  prepared.job.outputs = metric_outputs(*graph);
  MOTLEY_ASSIGN(prepared.job.watch, run::parse_watch(choices.watch));
  MOTLEY_RETURN_IF_ERROR(check_watched(prepared.job));
  const std::int64_t least = graph->sizes.empty() ? 1 : graph->sizes[0].min;
  if (samples < least)
    return usage_error("data.empty", fmt::format("{}: found {} samples, wanted {} or more",
                                                 choices.data.path, samples, least));
  const bool has_stages = plan::has_stages(planned.plan);
  synth::Sharding sharding;
  if (!has_stages) {
    MOTLEY_ASSIGN(sharding, synth::find_sharding(inputs.graph(), planned.plan, inputs.cluster));
  }
  const auto lower = [&](std::int64_t batch) {
    const synth::TrainedAndEvaluated graphs{inputs.graph(), *graph};
    return has_stages ? synth::lower_stage_evaluation(graphs, planned.plan, inputs.cluster,
                                                      planned.program->groups, batch)
                      : synth::lower_evaluation(graphs, {planned.plan, sharding}, batch);
  };
  std::int64_t batch =
      std::min(samples, planned.plan.global_batch / planned.plan.replicas[0].micro_batches);
  for (batch = std::max(batch, least);; batch /= 2) {
    MOTLEY_ASSIGN(prepared.programs, lower_batches(lower, {samples, batch, least}));
    const std::string fault = find_too_small(inputs, planned, prepared.programs);
    if (fault.empty()) break;
    if (batch / 2 < least)
      return tl::make_unexpected(Error{ErrorKind::kInfeasible, "plan.memory", fault});
  }
  return prepared;
}

}  // namespace motley::control
