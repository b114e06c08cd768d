#include "motley/cli/planning.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "motley/base/file.h"
#include "motley/base/text.h"
#include "motley/cli/torch_version.h"
#include "motley/graph/graph_text.h"
#include "motley/program/program_text.h"
#include "motley/search/planners.h"
#include "motley/search/price/cost_table.h"

namespace motley::cli {
namespace {

Result<std::vector<DeviceId>> allowed_devices(const cluster::Cluster& cluster,
                                              const std::vector<std::string>& exclude) {
  std::vector<bool> excluded(cluster.devices.size(), false);
  for (const std::string& name : exclude) {
    MOTLEY_ASSIGN(const DeviceId id, cluster::find_device(cluster, name));
    excluded[id.index()] = true;
  }
  std::vector<DeviceId> devices;
  for (std::size_t i = 0; i < excluded.size(); ++i)
    if (!excluded[i]) devices.emplace_back(static_cast<std::int64_t>(i));
  if (devices.empty()) return usage_error("cli.exclude", "--exclude leaves no device");
  return devices;
}

Result<plan::BatchNormMode> parse_batch_norm(const std::string& text) {
  if (text == "global") return plan::BatchNormMode::kGlobal;
  if (text == "local") return plan::BatchNormMode::kLocal;
  return usage_error("cli.batch-norm",
                     fmt::format("--batch-norm: found '{}', wanted global or local", text));
}

search::CostOptions cost_options(const Inputs& inputs, const PlanningOptions& options,
                                 const std::string& torch) {
  return {.lowering = inputs.lowering,
          .torch = torch,
          .global_batch = inputs.global_batch,
          .devices = inputs.devices,
          .may_model = options.profile == "model"};
}

/// Costs that price every group, or the error that says what is missing.
Result<search::Costs> load_priced(const Inputs& inputs, const PlanningOptions& options,
                                  const cost::ProfileStore& store, const std::string& torch) {
  MOTLEY_ASSIGN(auto costs, search::load_costs(inputs.model, inputs.cluster, store,
                                               cost_options(inputs, options, torch)));
  MOTLEY_RETURN_IF_ERROR(
      search::StepEvaluator::make(inputs.model.graph, inputs.cluster, inputs.lowering, costs));
  return costs;
}

plan::Problem make_problem(const Inputs& inputs, const PlanningOptions& options,
                           const std::vector<std::int64_t>& manual) {
  plan::Problem problem;
  problem.cluster = &inputs.cluster;
  problem.model_hash = inputs.model.hash;
  problem.global_batch = inputs.global_batch;
  if (!inputs.model.graph.sizes.empty()) {
    problem.min_samples = inputs.model.graph.sizes[0].min;
    problem.max_samples = inputs.model.graph.sizes[0].max;
  }
  problem.optimizer = inputs.lowering.optimizer;
  problem.batch_norm = inputs.lowering.batch_norm;
  problem.bucket_bytes = inputs.lowering.bucket_bytes;
  problem.devices = inputs.devices;
  problem.manual = manual;
  problem.seed = options.seed;
  return problem;
}

Json baseline_to_json(const plan::Baseline& baseline) {
  return {{"step_s", baseline.step.value}, {"fits", baseline.fits}, {"label", baseline.label}};
}

}  // namespace

Result<plan::Optimizer> parse_optimizer(const PlanningOptions& options) {
  plan::Optimizer optimizer;
  MOTLEY_ASSIGN(optimizer.kind, plan::parse_optimizer_kind(options.optimizer));
  const bool sgd = optimizer.kind == plan::OptimizerKind::kSgd;
  const double default_decay = optimizer.kind == plan::OptimizerKind::kAdamW ? 0.01 : 0.0;
  optimizer.lr = options.lr >= 0 ? options.lr : sgd ? 0.01 : 0.001;
  optimizer.weight_decay = options.weight_decay >= 0 ? options.weight_decay : default_decay;
  optimizer.momentum = options.momentum;
  optimizer.nesterov = options.nesterov;
  optimizer.beta1 = options.beta1;
  optimizer.beta2 = options.beta2;
  optimizer.eps = options.eps;
  if (!sgd && (options.momentum != 0 || options.nesterov))
    return usage_error("cli.optimizer",
                       fmt::format("--momentum and --nesterov belong to sgd, found "
                                   "--optimizer {}",
                                   options.optimizer));
  if (options.nesterov && options.momentum <= 0)
    return usage_error("cli.optimizer", "--nesterov wants --momentum above 0");
  return optimizer;
}

Result<std::vector<std::int64_t>> parse_batch_split(const std::string& text) {
  std::vector<std::int64_t> samples;
  if (text.empty()) return samples;
  for (const std::string_view part : split(text, ',')) {
    const auto value = find_integer(trim(part));
    if (!value || *value < 0)
      return usage_error(
          "cli.batch-split",
          fmt::format("--batch-split: found '{}', wanted samples of each device such "
                      "as 24,12,4",
                      text));
    samples.push_back(*value);
  }
  return samples;
}

Result<Inputs> read_inputs(const PlanningOptions& options, const Context& context) {
  if (options.model.empty())
    return usage_error("cli.model",
                       "which model? give -m MODEL.motley (written by python -m "
                       "motley.export)");
  if (options.cluster.empty())
    return usage_error("cli.cluster",
                       "which devices? give -C CLUSTER.toml (motley probe writes one)");
  if (options.global_batch < 1)
    return usage_error("cli.global-batch", "how many samples a step? give --global-batch N");
  if (options.time_limit && !(*options.time_limit > 0))
    return usage_error(
        "cli.time-limit",
        fmt::format("--time-limit: found {}, wanted seconds above 0", *options.time_limit));
  Inputs inputs;
  inputs.model_path = options.model;
  MOTLEY_ASSIGN(inputs.model, graph::read_model(options.model));
  MOTLEY_ASSIGN(inputs.cluster, cluster::read_cluster(options.cluster));
  MOTLEY_ASSIGN(inputs.devices, allowed_devices(inputs.cluster, options.exclude));
  MOTLEY_ASSIGN(inputs.lowering.optimizer, parse_optimizer(options));
  MOTLEY_ASSIGN(inputs.lowering.batch_norm, parse_batch_norm(options.batch_norm));
  MOTLEY_ASSIGN(inputs.lowering.bucket_bytes, parse_bytes(options.bucket));
  inputs.global_batch = options.global_batch;
  phase(context, "load", [&] {
    return graph::print_graph(inputs.model.graph) + cluster::print_cluster(inputs.cluster);
  });
  return inputs;
}

std::string profile_path(const PlanningOptions& options, const Context& context) {
  return options.profiles.empty() ? context.profile_store : options.profiles;
}

Result<std::shared_ptr<const search::Costs>> find_costs(const Inputs& inputs,
                                                        const PlanningOptions& options,
                                                        const Context& context) {
  if (options.profile != "auto" && options.profile != "never" && options.profile != "model")
    return usage_error(
        "cli.profile",
        fmt::format("--profile: found '{}', wanted auto, never or model", options.profile));
  MOTLEY_ASSIGN(const std::string torch, worker_version(context));
  const std::string path = profile_path(options, context);
  std::error_code code;
  if (const auto parent = std::filesystem::path(path).parent_path(); !parent.empty())
    std::filesystem::create_directories(parent, code);
  MOTLEY_ASSIGN(cost::ProfileStore store, cost::ProfileStore::open(path));
  auto costs = load_priced(inputs, options, store, torch);
  if (!costs && options.profile == "auto" && costs.error().code.ends_with(".missing-profile")) {
    MOTLEY_RETURN_IF_ERROR(measure(inputs, store, context));
    costs = load_priced(inputs, options, store, torch);
  }
  if (!costs) return tl::make_unexpected(costs.error());
  phase(context, "price",
        [&] { return search::print_cost_table(search::build_cost_table(*costs, inputs.cluster)); });
  return std::make_shared<const search::Costs>(std::move(*costs));
}

namespace {

/// How often a sharding is planned, at most, with what measuring the one before taught.
constexpr int kPlanningRounds = 4;

Result<void> plan_once(const PlanningOptions& options, const std::vector<std::int64_t>& manual,
                       Planned& planned) {
  const Inputs& inputs = planned.inputs;
  const double start = steady_seconds();
  MOTLEY_ASSIGN(const auto evaluator,
                search::StepEvaluator::make(inputs.model.graph, inputs.cluster, inputs.lowering,
                                            *planned.costs));
  MOTLEY_ASSIGN(
      const auto planner,
      search::make_planner(manual.empty() ? options.planner : "manual", evaluator->inputs()));
  plan::Problem problem = make_problem(inputs, options, manual);
  if (planned.outcome.plan) problem.known = {*planned.outcome.plan};
  if (options.time_limit) problem.time_limit = Seconds(*options.time_limit - planned.elapsed_s);
  MOTLEY_ASSIGN(planned.outcome, planner->plan(problem));
  planned.elapsed_s += steady_seconds() - start;
  return {};
}

}  // namespace

Result<void> show_plan(const Inputs& inputs, const plan::Plan& plan, const Context& context) {
  phase(context, "search", [&] { return plan::print_plan(plan, inputs.cluster); });
  if (context.print_phase != "synth" && context.dump_dir.empty()) return {};
  MOTLEY_ASSIGN(const auto program, synth::lower(inputs.model.graph, plan, inputs.cluster));
  phase(context, "synth", [&] { return program::print_program(program); });
  return {};
}

Result<Planned> make_plan(const PlanningOptions& options, const Context& context) {
  Planned planned;
  MOTLEY_ASSIGN(planned.inputs, read_inputs(options, context));
  const Inputs& inputs = planned.inputs;
  MOTLEY_ASSIGN(const auto manual, parse_batch_split(options.batch_split));
  for (int round = 0; round < kPlanningRounds; ++round) {
    MOTLEY_ASSIGN(planned.costs, find_costs(inputs, options, context));
    MOTLEY_RETURN_IF_ERROR(plan_once(options, manual, planned));
    const auto& plan = planned.outcome.plan;
    if (options.profile != "auto" || !plan || plan::find_shared_region(*plan) == nullptr) break;
    MOTLEY_ASSIGN(const bool has_learned,
                  measure_plan(inputs, *plan, profile_path(options, context), context));
    if (!has_learned) break;
  }
  if (!planned.outcome.plan) return planned;
  const plan::Plan& plan = *planned.outcome.plan;
  MOTLEY_RETURN_IF_ERROR(show_plan(inputs, plan, context));
  return planned;
}

Json outcome_to_json(const Planned& planned) {
  const plan::PlanOutcome& outcome = planned.outcome;
  const cluster::Cluster& cluster = planned.inputs.cluster;
  Json peak = Json::object(), split = Json::object(), idle = Json::array();
  for (const auto& [device, bytes] : outcome.peak) peak[cluster.device(device).name] = bytes.value;
  if (outcome.plan)
    for (const auto& [device, samples] : plan::members(*outcome.plan))
      split[cluster.device(device).name] = samples;
  for (const DeviceId device : outcome.idle) idle.push_back(cluster.device(device).name);
  const bool found = outcome.plan.has_value();
  const bool priced = found && outcome.predicted_step.value > 0;
  return {{"planner", outcome.planner},
          {"outcome", plan::reason_name(outcome.reason)},
          {"predicted_step_s", priced ? Json(outcome.predicted_step.value) : Json(nullptr)},
          {"lower_bound_s", found ? Json(outcome.lower_bound.value) : Json(nullptr)},
          {"peak_bytes", peak},
          {"batch_split", split},
          {"idle", idle},
          {"baselines",
           {{"equal_split", baseline_to_json(outcome.equal_split)},
            {"best_single", baseline_to_json(outcome.best_single)}}},
          {"considered", outcome.considered},
          {"elapsed_s", planned.elapsed_s},
          {"why", outcome.why}};
}

Error infeasible_error(const plan::PlanOutcome& outcome) {
  const std::string what =
      outcome.reason == plan::Reason::kLimit ? "no plan that fits was found" : "no feasible plan";
  return {ErrorKind::kInfeasible, "plan.infeasible", what + ": " + join(outcome.why, "; ")};
}

Result<int> report_infeasible(const plan::PlanOutcome& outcome, const Json& object,
                              const Context& context) {
  if (!context.json) return tl::make_unexpected(infeasible_error(outcome));
  context.result("", object);
  return kInfeasible;
}

}  // namespace motley::cli
