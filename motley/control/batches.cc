#include "motley/control/batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "motley/adapt/batch_policies.h"
#include "motley/adapt/learned_options.h"
#include "motley/control/splits.h"
#include "motley/synth/accumulation.h"

namespace motley::control {
namespace {

constexpr auto kAmongOthers = search::SplitEvaluator::Setting::kShared;

/// A batch grows to so many times the first one unless more is allowed.
constexpr std::int64_t kUsualGrowth = 16;

/// Groups of devices that are looked at.
constexpr std::size_t kMostGroups = 24;

/// Of a device alone, so that there is something to compare, unless its plan has more.
constexpr std::int64_t kFewestMicroBatches = 2;

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

/// The plan's only device, if it has one.
std::optional<DeviceId> only_device(const plan::Plan& plan) {
  const std::vector<plan::Member> members = plan::members(plan);
  return members.size() == 1 ? std::optional(members.front().device) : std::nullopt;
}

/// A step of a device alone is done in so many micro-batches.
std::int64_t micro_batches_alone(const plan::Plan& plan) {
  return only_device(plan) ? std::max(kFewestMicroBatches, plan.replicas.front().micro_batches)
                           : kFewestMicroBatches;
}

/// Are batch norm's statistics those of micro-batches? Then several devices would train otherwise.
bool stays_alone(const ChosenPlan& chosen) {
  return only_device(chosen.planned.plan) &&
         chosen.planned.plan.replicas.front().micro_batches > 1 &&
         chosen.planned.plan.batch_norm_span == plan::BatchNormSpan::kMicroBatch &&
         synth::trains_batch_norm(chosen.inputs.graph());
}

Result<Candidate> make_candidate(const Inputs& inputs, plan::Plan plan,
                                 const policy::UseBatch& batch) {
  const std::int64_t alone = micro_batches_alone(plan);
  std::vector<DeviceId> devices;
  std::vector<std::int64_t> samples;
  plan.global_batch = 0;
  for (const policy::Share& share : batch.shares) {
    MOTLEY_ASSIGN(devices.emplace_back(), cluster::find_device(inputs.cluster, share.device));
    samples.push_back(share.samples);
    plan.global_batch += share.samples;
  }
  plan.replicas = plan::make_replicas(devices, samples);
  if (plan.replicas.size() == 1) plan.replicas.front().micro_batches = alone;
  MOTLEY_RETURN_IF_ERROR(plan::verify_plan(plan, inputs.model->hash, inputs.cluster));
  Candidate candidate{describe_plan(plan, inputs.cluster), {std::move(plan), nullptr}};
  candidate.label =
      fmt::format("{} samples, {}", candidate.planned.plan.global_batch, candidate.label);
  candidate.lr_factor = batch.lr_factor;
  return candidate;
}

/// The plan's batch, or another one, on one device.
Result<Candidate> make_alone(const ChosenPlan& chosen, DeviceId id, std::int64_t batch) {
  return make_candidate(chosen.inputs, chosen.planned.plan,
                        {{{chosen.inputs.cluster.device(id).name, batch}}, 1});
}

/// What is believed of a device's whole step: micro-batches, and the update once.
std::optional<adapt::CurvePrior> prior_alone(const ChosenPlan& chosen, DeviceId id,
                                             const adapt::DeviceLimits& limits) {
  const search::StepEvaluator* evaluator = chosen.priced.evaluator.get();
  if (evaluator == nullptr || !limits.prior) return std::nullopt;
  const cost::Curve& part = evaluator->curves(id, kAmongOthers).end;
  const cost::Curve& whole = evaluator->curves(id, search::SplitEvaluator::Setting::kAlone).end;
  const auto times = static_cast<double>(micro_batches_alone(chosen.planned.plan));
  adapt::CurvePrior prior{{}, limits.prior->trust};
  for (const auto& [samples, seconds] : part.points) {
    const double at = times * samples;
    prior.curves.end.points.emplace_back(
        at, times * seconds + std::max(0.0, whole.at(at) - part.at(at)));
  }
  return prior;
}

/// The most samples a step that a device's memory holds when it trains alone; 0: it cannot, as the
/// model's step cannot be done in micro-batches or its gradients are not counted.
std::int64_t most_alone(const ChosenPlan& chosen, const Adaptation& adaptation, DeviceId id,
                        std::int64_t most) {
  const auto fits = [&](std::int64_t batch) {
    auto candidate = make_alone(chosen, id, batch);
    return candidate && lower_candidate(chosen.inputs, adaptation, *candidate) &&
           check_memory(chosen.inputs, candidate->planned);
  };
  const std::int64_t first = chosen.inputs.global_batch;
  if (!fits(first)) return 0;
  if (!chosen.inputs.cluster.device(id).memory || fits(most)) return most;
  std::int64_t holds = first, lacks = most;
  while (lacks - holds > 1) {
    const std::int64_t middle = (holds + lacks) / 2;
    (fits(middle) ? holds : lacks) = middle;
  }
  return holds;
}

/// The samples that the model takes at least.
std::int64_t least_samples(const graph::Graph& graph) {
  for (const graph::NamedSize& size : graph.sizes)
    if (size.name == "batch") return size.min;
  return 1;
}

Result<Devices> find_devices(const ChosenPlan& chosen, const Adaptation& adaptation,
                             std::int64_t most, adapt::ObjectiveKind objective) {
  const cluster::Cluster& cluster = chosen.inputs.cluster;
  const std::optional<DeviceId> only = only_device(chosen.planned.plan);
  std::vector<std::pair<double, adapt::DeviceLimits>> found;
  for (adapt::DeviceLimits& limits : find_limits(chosen, most)) {
    MOTLEY_ASSIGN(const DeviceId id, cluster::find_device(cluster, limits.device));
    if (limits.most < 1 && id != only) continue;
    // Who begins alone may go on so.
    found.emplace_back(id == only ? 0 : slowness(chosen, id), std::move(limits));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  if (found.size() > 1 && stays_alone(chosen)) found.resize(1);
  Devices devices;
  std::vector<DeviceId> ids;
  const std::size_t every = (found.size() + kMostGroups - 1) / kMostGroups;
  for (auto& [seconds, limits] : found) {
    MOTLEY_ASSIGN(ids.emplace_back(), cluster::find_device(cluster, limits.device));
    devices.limits.push_back(std::move(limits));
    adapt::LearnedGroup group{.devices = ids.size()};
    if (ids.size() == 1) {
      group.alone = {micro_batches_alone(chosen.planned.plan),
                     most_alone(chosen, adaptation, ids.front(), most),
                     prior_alone(chosen, ids.front(), devices.limits.front())};
      if (group.alone.most == 0) continue;
    } else if (ids.size() % every != 0 && ids.size() != found.size()) {
      continue;
    }
    const std::optional<double> price = cluster::price_per_hour(cluster, ids);
    if (!price && objective != adapt::ObjectiveKind::kTime)
      return usage_error("cli.objective",
                         "--objective: the cluster file has no price_per_hour of some machine");
    group.per_hour = price.value_or(0);
    if (chosen.priced.evaluator && ids.size() > 1)
      group.exchanges = chosen.priced.evaluator->group_times(ids);
    devices.groups.push_back(std::move(group));
  }
  if (devices.groups.empty())
    return usage_error("cli.adapt",
                       "--adapt batch learns the noise of gradients from how those of devices, or "
                       "of micro-batches of one device, differ: there is one device, and its step "
                       "cannot be done in micro-batches");
  return devices;
}

/// The chosen plan; of one device in micro-batches or, where that cannot be, the quickest split of
/// its batch over several.
Result<Candidate> first_candidate(const ChosenPlan& chosen, const Adaptation& adaptation,
                                  const adapt::OptionSource& source) {
  const plan::Plan& plan = chosen.planned.plan;
  const Inputs& inputs = chosen.inputs;
  policy::UseBatch batch{shares_of(plan, inputs.cluster), 1};
  const auto make = [&]() -> Result<Candidate> {
    MOTLEY_ASSIGN(Candidate candidate, make_candidate(inputs, plan, batch));
    MOTLEY_RETURN_IF_ERROR(lower_candidate(inputs, adaptation, candidate));
    predict_candidate(inputs, adaptation, candidate);
    return candidate;
  };
  Result<Candidate> first = make();
  if (first || batch.shares.size() > 1) return first;
  double best = std::numeric_limits<double>::infinity();
  for (const adapt::BatchOption& option : source.options()) {
    std::vector<std::int64_t> samples = adapt::split_batch(option, plan.global_batch);
    const std::vector<policy::Share> shares = adapt::shares_of(option, samples);
    if (shares.size() < 2 || adapt::step_seconds(option, samples).value >= best) continue;
    best = adapt::step_seconds(option, samples).value;
    batch.shares = shares;
  }
  if (batch.shares.size() < 2) return with_context("--adapt batch, one device", first.error());
  return make();
}

}  // namespace

Result<std::shared_ptr<Adaptation>> adapt_batch(const ChosenPlan& chosen,
                                                const BatchChoices& choices) {
  const Inputs& inputs = chosen.inputs;
  const plan::Plan& plan = chosen.planned.plan;
  if (!only_device(plan)) MOTLEY_RETURN_IF_ERROR(require_batch_split(chosen, "batch"));
  MOTLEY_ASSIGN(adapt::BatchBounds bounds, find_bounds(inputs, choices));
  auto adaptation = std::make_shared<Adaptation>();
  adaptation->first_batch = inputs.global_batch;
  adaptation->counts_squares = true;
  adaptation->costs = chosen.priced.costs;
  MOTLEY_ASSIGN(const Devices devices,
                find_devices(chosen, *adaptation, static_cast<std::int64_t>(bounds.most),
                             choices.objective.kind));
  if (devices.groups.front().devices == 1)
    bounds.least = std::max(bounds.least, static_cast<double>(micro_batches_alone(plan) *
                                                              least_samples(inputs.graph())));
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
  adaptation->make_policy = [devices, setting, policy = choices.policy](const Adaptation&) {
    return adapt::make_batch_policy(
        policy, setting, std::make_unique<adapt::LearnedOptions>(devices.limits, devices.groups));
  };
  const adapt::LearnedOptions believed(devices.limits, devices.groups);
  MOTLEY_ASSIGN(Candidate first, first_candidate(chosen, *adaptation, believed));
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
