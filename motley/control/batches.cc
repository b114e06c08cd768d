#include "motley/control/batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "motley/adapt/batch_policies.h"
#include "motley/adapt/learned_options.h"
#include "motley/control/splits.h"

namespace motley::control {
namespace {

constexpr auto kAmongOthers = search::SplitEvaluator::Setting::kShared;

/// A batch grows to so many times the first one unless more is allowed.
constexpr std::int64_t kUsualGrowth = 16;

/// Groups of devices that are looked at.
constexpr std::size_t kMostGroups = 24;

/// What the policy is told of devices: the quickest first, and groups of the first ones.
struct Devices {
  std::vector<adapt::DeviceLimits> limits;
  std::vector<adapt::LearnedGroup> groups;
};

Result<adapt::BatchBounds> find_bounds(const Inputs& inputs, const BatchChoices& choices) {
  const std::int64_t first = inputs.global_batch;
  const std::int64_t least = choices.least > 0 ? choices.least : first;
  std::int64_t most = choices.most > 0 ? choices.most : kUsualGrowth * first;
  if (choices.most == 0 && choices.samples > 0) most = std::clamp(choices.samples, first, most);
  if (least > first || most < first)
    return usage_error("cli.batch-limits",
                       fmt::format("--batch-limits: found {}:{}, the training begins with {}, "
                                   "which must lie between them",
                                   least, most, first));
  return adapt::BatchBounds{static_cast<double>(least), static_cast<double>(most)};
}

/// Seconds of a device's own work at its part of an even split; else what its speed says.
double slowness(const ChosenPlan& chosen, DeviceId id) {
  const Inputs& inputs = chosen.inputs;
  if (const auto* evaluator = chosen.priced.evaluator.get())
    return evaluator->curves(id, kAmongOthers)
        .end.at(static_cast<double>(inputs.global_batch) /
                static_cast<double>(inputs.devices.size()));
  return 1 / inputs.cluster.device(id).speed;
}

/// An hour of all machines that these devices are of; none: some has no price.
std::optional<double> price_of(const cluster::Cluster& cluster, const std::vector<DeviceId>& ids) {
  std::set<NodeId> nodes;
  for (const DeviceId id : ids) nodes.insert(cluster.device(id).node);
  double sum = 0;
  for (const NodeId node : nodes) {
    const auto& price = cluster.nodes[node.index()].price_per_hour;
    if (!price) return std::nullopt;
    sum += *price;
  }
  return sum;
}

Result<Devices> find_devices(const ChosenPlan& chosen, std::int64_t most,
                             adapt::ObjectiveKind objective) {
  const cluster::Cluster& cluster = chosen.inputs.cluster;
  std::vector<std::pair<double, adapt::DeviceLimits>> found;
  for (adapt::DeviceLimits& limits : find_limits(chosen, most)) {
    if (limits.most < 1) continue;
    MOTLEY_ASSIGN(const DeviceId id, cluster::find_device(cluster, limits.device));
    found.emplace_back(slowness(chosen, id), std::move(limits));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  if (found.size() < 2)
    return usage_error("cli.adapt",
                       fmt::format("--adapt batch learns the noise of gradients from how those of "
                                   "devices differ: found {}, wanted two or more",
                                   found.size()));
  Devices devices;
  std::vector<DeviceId> ids;
  const std::size_t every = (found.size() + kMostGroups - 1) / kMostGroups;
  for (auto& [seconds, limits] : found) {
    MOTLEY_ASSIGN(ids.emplace_back(), cluster::find_device(cluster, limits.device));
    devices.limits.push_back(std::move(limits));
    if (ids.size() < 2 || (ids.size() % every != 0 && ids.size() != found.size())) continue;
    adapt::LearnedGroup& group = devices.groups.emplace_back();
    group.devices = ids.size();
    const std::optional<double> price = price_of(cluster, ids);
    if (!price && objective != adapt::ObjectiveKind::kTime)
      return usage_error("cli.objective",
                         "--objective: the cluster file has no price_per_hour of some machine");
    group.per_hour = price.value_or(0);
    if (chosen.priced.evaluator) group.exchanges = chosen.priced.evaluator->group_times(ids);
  }
  return devices;
}

Result<Candidate> make_candidate(const Inputs& inputs, plan::Plan plan,
                                 const policy::UseBatch& batch) {
  std::vector<DeviceId> devices;
  std::vector<std::int64_t> samples;
  plan.global_batch = 0;
  for (const policy::Share& share : batch.shares) {
    MOTLEY_ASSIGN(devices.emplace_back(), cluster::find_device(inputs.cluster, share.device));
    samples.push_back(share.samples);
    plan.global_batch += share.samples;
  }
  plan.replicas = plan::make_replicas(devices, samples);
  MOTLEY_RETURN_IF_ERROR(plan::verify_plan(plan, inputs.model->hash, inputs.cluster));
  Candidate candidate{describe_plan(plan, inputs.cluster), {std::move(plan), nullptr}};
  candidate.label =
      fmt::format("{} samples, {}", candidate.planned.plan.global_batch, candidate.label);
  candidate.lr_factor = batch.lr_factor;
  return candidate;
}

/// The chosen plan, or, as one device alone shows no noise, the quickest split of its batch.
Result<Candidate> first_candidate(const ChosenPlan& chosen,
                                  const std::optional<Predicted>& predicted,
                                  const adapt::OptionSource& source) {
  const plan::Plan& plan = chosen.planned.plan;
  const Inputs& inputs = chosen.inputs;
  policy::UseBatch batch{shares_of(plan, inputs.cluster), 1};
  const bool is_alone = batch.shares.size() < 2;
  double best = std::numeric_limits<double>::infinity();
  for (const adapt::BatchOption& option : source.options()) {
    if (!is_alone) break;
    std::vector<std::int64_t> samples = adapt::split_batch(option, plan.global_batch);
    const std::vector<policy::Share> shares = adapt::shares_of(option, samples);
    if (shares.size() < 2 || adapt::step_seconds(option, samples).value >= best) continue;
    best = adapt::step_seconds(option, samples).value;
    batch.shares = shares;
  }
  if (batch.shares.size() < 2)
    return usage_error("cli.adapt",
                       "--adapt batch learns the noise of gradients from how those of devices "
                       "differ, the plan has one; add --planner equal");
  MOTLEY_ASSIGN(Candidate candidate, make_candidate(inputs, plan, batch));
  if (!is_alone) candidate.predicted = predicted;
  return candidate;
}

}  // namespace

Result<std::shared_ptr<Adaptation>> adapt_batch(const ChosenPlan& chosen,
                                                const std::optional<Predicted>& predicted,
                                                const BatchChoices& choices) {
  const Inputs& inputs = chosen.inputs;
  const plan::Plan& plan = chosen.planned.plan;
  MOTLEY_RETURN_IF_ERROR(require_batch_split(chosen, "batch"));
  MOTLEY_ASSIGN(const adapt::BatchBounds bounds, find_bounds(inputs, choices));
  MOTLEY_ASSIGN(const Devices devices, find_devices(chosen, static_cast<std::int64_t>(bounds.most),
                                                    choices.objective.kind));
  const auto is_sgd = plan.recipe.optimizer.kind == plan::OptimizerKind::kSgd;
  adapt::BatchSetting setting;
  setting.batch.initial_batch = static_cast<double>(inputs.global_batch);
  setting.batch.bounds = bounds;
  setting.batch.rule = choices.rule.value_or(is_sgd ? adapt::LearningRateRule::kAdaScale
                                                    : adapt::LearningRateRule::kSquareRoot);
  setting.batch.objective = choices.objective;
  setting.batch.change = kChangeCost;
  setting.batch.iterations = choices.steps;
  setting.samples_per_pass = choices.samples;
  auto adaptation = std::make_shared<Adaptation>();
  adaptation->make_policy = [devices, setting, policy = choices.policy](const Adaptation&) {
    return adapt::make_batch_policy(
        policy, setting, std::make_unique<adapt::LearnedOptions>(devices.limits, devices.groups));
  };
  adaptation->first_batch = inputs.global_batch;
  adaptation->counts_squares = true;
  const adapt::LearnedOptions believed(devices.limits, devices.groups);
  MOTLEY_ASSIGN(Candidate first, first_candidate(chosen, predicted, believed));
  MOTLEY_RETURN_IF_ERROR(lower_candidate(inputs, *adaptation, first));
  adaptation->candidates.push_back(std::move(first));
  MOTLEY_ASSIGN(adaptation->policy, adaptation->make_policy(*adaptation));
  for (const adapt::DeviceLimits& limits : devices.limits) {
    MOTLEY_ASSIGN(adaptation->spare.emplace_back(),
                  cluster::find_device(inputs.cluster, limits.device));
  }
  adaptation->batch = [&inputs, plan](const policy::UseBatch& batch) {
    return make_candidate(inputs, plan, batch);
  };
  return adaptation;
}

}  // namespace motley::control
