#include "motley/control/planning/layers.h"

#include <fmt/format.h>

#include <utility>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/cost/layers/sailor.h"
#include "motley/program/blocking_messages.h"
#include "motley/search/split/step_price.h"
#include "motley/search/stages/pipeline_stages.h"
#include "motley/search/stages/stage_evaluator.h"
#include "motley/simulate/simulate.h"
#include "motley/synth/lower.h"

namespace motley::control {
namespace {

Result<std::shared_ptr<const search::HopCosts>> find_hops(const LayerFiles& files,
                                                          const cluster::Cluster& cluster,
                                                          const search::ClusterPools& pools) {
  if (files.network.empty())
    return std::shared_ptr<const search::HopCosts>(search::cluster_hops(cluster, pools));
  MOTLEY_ASSIGN(const cost::StageNetwork network, read_network(files));
  return std::shared_ptr<const search::HopCosts>(search::fitted_hops(network, pools.pools));
}

/// The runtime of Motley's own programs: all-reduced gradients have no second buffer.
constexpr search::StageRuntime kOwnRuntime{.copies_gradients = false};

bool is_pass(const program::Instruction& instruction) {
  return instruction.op == cost::kLayer || instruction.op == cost::kLayerBackward;
}

void read_spans(const trace::Trace& trace, SimulatedLayers& made) {
  trace::Nanoseconds last_pass = 0, last_sum = 0;
  for (const trace::Interval& interval : trace.intervals) {
    if (interval.step > 0) continue;
    const auto rank = static_cast<std::size_t>(interval.device);
    LayerSpan& span = made.spans[rank];
    const program::Instruction& instruction =
        made.program.devices[rank].instructions[interval.instruction.index()];
    const auto seconds = [](trace::Nanoseconds time) {
      return Seconds(1e-9 * static_cast<double>(time));
    };
    if (interval.lane == Lane::kCompute) span.compute += seconds(interval.end - interval.begin);
    if (is_pass(instruction)) {
      if (span.last.value == 0) span.first = seconds(interval.begin);
      span.last = seconds(interval.end);
      last_pass = std::max(last_pass, interval.end);
    }
    if (interval.lane == Lane::kTransfer && instruction.label != "loss")
      last_sum = std::max(last_sum, interval.end);
  }
  for (const trace::StepMark& mark : trace.steps)
    if (mark.step == 0)
      made.spans[static_cast<std::size_t>(mark.device)].end =
          Seconds(1e-9 * static_cast<double>(mark.end));
  made.exchange =
      Seconds(1e-9 * static_cast<double>(std::max<trace::Nanoseconds>(0, last_sum - last_pass)));
}

/// Lowers and simulates the plan of `made`, and reads its results.
Result<void> run(const search::ClusterPools& pools, std::shared_ptr<const search::HopCosts> hops,
                 const search::StageRuntime& runtime, int steps, SimulatedLayers& made) {
  MOTLEY_ASSIGN(made.program, synth::lower(made.model->layers.graph, made.plan, made.cluster));
  if (runtime.messages_block) {
    MOTLEY_ASSIGN(made.program, program::block_messages(made.program));
  }
  MOTLEY_ASSIGN(const auto seats, search::find_layer_seats(made.plan, pools, made.cluster));
  const search::LayerCost cost(made.model->profile, made.model->layers.rows, pools.pools,
                               std::move(hops), runtime, seats);
  std::vector<Bytes> peaks;
  for (const program::DeviceProgram& device : made.program.devices) {
    MOTLEY_ASSIGN(const cost::CostModel::Times times, cost.times(device));
    made.spans.push_back({.memory = program::find_memory_peak(device, times.scratch)});
    made.spans.back().held = runtime.context;
    if (runtime.copies_gradients) made.spans.back().held += made.spans.back().memory.parameters;
    peaks.push_back(made.spans.back().memory.total);
  }
  std::size_t rank = 0;
  for (std::size_t r = 0; r < made.plan.replicas.size(); ++r)
    for (std::size_t g = 0; g < made.plan.replicas[r].regions.size(); ++g)
      for (std::size_t i = 0; i < made.plan.replicas[r].regions[g].devices.size(); ++i, ++rank) {
        if (rank >= made.spans.size()) break;
        made.spans[rank].replica = r;
        made.spans[rank].region = g;
      }
  MOTLEY_ASSIGN(made.trace,
                simulate::simulate(made.program, cost, {.steps = steps, .peaks = peaks}));
  made.step = trace::median_step(made.trace);
  read_spans(made.trace, made);
  return {};
}

/// Returns the step by programs of one device per kind; none: devices of a kind differ.
Result<std::optional<Seconds>> find_step(const search::ClusterPools& pools,
                                         std::shared_ptr<const search::HopCosts> hops,
                                         const SimulatedLayers& made) {
  if (!plan::has_stages(made.plan)) return std::nullopt;
  MOTLEY_ASSIGN(const auto seats, search::find_layer_seats(made.plan, pools, made.cluster));
  std::vector<int> classes;
  for (const plan::Member& member : plan::members(made.plan))
    classes.push_back(static_cast<int>(seats.at(made.cluster.device(member.device).name).pool));
  const search::LayerCost cost(made.model->profile, made.model->layers.rows, pools.pools,
                               std::move(hops), kOwnRuntime, seats);
  MOTLEY_ASSIGN(const auto price, search::price_stage_kinds(made.model->layers.graph, made.plan,
                                                            made.cluster, classes, cost));
  return price ? std::optional(price->step) : std::nullopt;
}

Result<cluster::Cluster> cluster_of(const std::vector<search::DevicePool>& pools) {
  std::string text = "schema = \"motley.cluster/1\"\nname = \"pipeline\"\n";
  for (const search::DevicePool& pool : pools)
    for (int host = 0; host < pool.hosts(); ++host)
      text +=
          fmt::format("[[node]]\nname = \"{}-{}\"\n[[node.device]]\nkind = \"{}\"\ncount = {}\n",
                      pool.kind, host, pool.kind, pool.per_host);
  return cluster::parse_cluster(text, "the pipeline's devices");
}

/// Do neighbouring stages have equal device counts, so that devices pair up?
bool has_counterparts(const cost::PipelinePlan& plan) {
  for (std::size_t s = 0; s + 1 < plan.stages.size(); ++s)
    for (std::size_t r = 0; r < plan.stages[s].replicas.size(); ++r)
      if (r >= plan.stages[s + 1].replicas.size() ||
          plan.stages[s].replicas[r].tensor_parallel !=
              plan.stages[s + 1].replicas[r].tensor_parallel)
        return false;
  return true;
}

Result<SimulatedLayers> run_pipeline(std::shared_ptr<const search::LayerModel> model,
                                     const LayerFiles& files, const std::string& text,
                                     const std::string& path, int steps) {
  if (files.network.empty())
    return usage_error("cli.layers", "a pipeline wants --layer-network FILE");
  MOTLEY_ASSIGN(const cost::SailorPlan pipeline, cost::parse_sailor_plan(text, path));
  MOTLEY_ASSIGN(const cost::StageNetwork network, read_network(files));
  search::ClusterPools pools{search::pools_of(pipeline.plan, files.devices_per_host)};
  std::shared_ptr<const search::HopCosts> hops = search::fitted_hops(network, pools.pools);
  const bool is_even = has_counterparts(pipeline.plan);
  const search::StageRuntime runtime =
      is_even ? search::blocking_runtime() : search::StageRuntime{};
  MOTLEY_ASSIGN(const auto costs,
                search::LayerStageCosts::make(*model->profile, pools.pools, hops, runtime));
  search::PricedStagePlan priced;
  MOTLEY_ASSIGN(priced.plan, search::to_stage_plan(pipeline.plan, costs));
  const search::StageSums sums(costs);
  MOTLEY_ASSIGN(priced.price, search::StageEvaluator(sums).price(priced.plan));
  SimulatedLayers made{.model = std::move(model), .measured = pipeline.step};
  made.notes = cost::say_untimed(*made.model->profile);
  if (!is_even)
    made.notes.push_back(
        "neighbouring stages have unlike degrees, of which no run was measured: messages are taken "
        "to go in parts and beside the computing, not as sends that block");
  MOTLEY_ASSIGN(made.cluster, cluster_of(pools.pools));
  std::int64_t next = 0;
  for (const search::DevicePool& pool : pools.pools) {
    pools.devices.emplace_back();
    for (int i = 0; i < pool.devices; ++i) pools.devices.back().emplace_back(next++);
  }
  MOTLEY_ASSIGN(made.plan,
                search::write_layer_plan(priced, costs, pools, made.cluster, *made.model));
  // Gradients go in one bucket, when all are complete.
  made.plan.bucket_bytes = Bytes(std::int64_t{1} << 50);
  made.estimate = std::move(priced.price);
  MOTLEY_RETURN_IF_ERROR(run(pools, std::move(hops), runtime, steps, made));
  return made;
}

}  // namespace

Result<StageAnswer> plan_stages(const LayerFiles& files, const cluster::Cluster& cluster,
                                std::int64_t global_batch, const Clock& clock,
                                const FindStages& find) {
  MOTLEY_ASSIGN(const auto model, read_layers(files));
  MOTLEY_ASSIGN(const search::ClusterPools pools, search::find_pools(cluster));
  MOTLEY_ASSIGN(auto hops, find_hops(files, cluster, pools));
  MOTLEY_ASSIGN(auto costs,
                search::LayerStageCosts::make(*model->profile, pools.pools, std::move(hops),
                                              {.may_recompute = files.may_recompute}));
  StageAnswer answer;
  answer.costs = std::make_unique<const search::LayerStageCosts>(std::move(costs));
  const Seconds start = clock.steady();
  MOTLEY_ASSIGN(answer.outcome, find({answer.costs.get(), global_batch}));
  answer.elapsed_s = (clock.steady() - start).value;
  for (std::string& note : cost::say_untimed(*model->profile))
    answer.outcome.why.push_back(std::move(note));
  return answer;
}

Result<SimulatedLayers> simulate_layers(const LayerFiles& files, const std::string& plan_path,
                                        const std::string& cluster_path, int steps) {
  MOTLEY_ASSIGN(auto model, read_layers(files));
  MOTLEY_ASSIGN(const std::string text, read_file(plan_path));
  MOTLEY_ASSIGN(const Json json, parse_json(text, plan_path));
  if (json.is_object() && json.contains("pipeline_list"))
    return run_pipeline(std::move(model), files, text, plan_path, steps);
  if (cluster_path.empty())
    return usage_error("cli.cluster", "which devices? give -C CLUSTER.toml");
  SimulatedLayers made{.model = std::move(model)};
  made.notes = cost::say_untimed(*made.model->profile);
  MOTLEY_ASSIGN(made.cluster, cluster::read_cluster(cluster_path));
  MOTLEY_ASSIGN(made.plan, plan::parse_plan(text, plan_path, made.cluster));
  if (const auto verified = plan::verify_plan(made.plan, made.model->hash, made.cluster); !verified)
    return with_context(plan_path, verified.error());
  if (plan::has_stages(made.plan))
    MOTLEY_RETURN_IF_ERROR(cost::check_outputs(*made.model->profile));
  MOTLEY_ASSIGN(const search::ClusterPools pools, search::find_pools(made.cluster));
  MOTLEY_ASSIGN(auto hops, find_hops(files, made.cluster, pools));
  MOTLEY_RETURN_IF_ERROR(run(pools, std::move(hops), kOwnRuntime, steps, made));
  return made;
}

Result<SimulatedLayers> simulate_stages(const LayerFiles& files, const cluster::Cluster& cluster,
                                        const search::PricedStagePlan& found,
                                        const search::StageCosts& costs, Simulated what) {
  SimulatedLayers made;
  made.cluster = cluster;
  MOTLEY_ASSIGN(made.model, read_layers(files));
  MOTLEY_ASSIGN(const search::ClusterPools pools, search::find_pools(made.cluster));
  MOTLEY_ASSIGN(made.plan,
                search::write_layer_plan(found, costs, pools, made.cluster, *made.model));
  MOTLEY_ASSIGN(auto hops, find_hops(files, made.cluster, pools));
  if (what == Simulated::kStep) {
    MOTLEY_ASSIGN(const std::optional<Seconds> step, find_step(pools, hops, made));
    made.step = step.value_or(Seconds());
    if (step) return made;
  }
  MOTLEY_RETURN_IF_ERROR(run(pools, std::move(hops), kOwnRuntime, 1, made));
  return made;
}

}  // namespace motley::control
