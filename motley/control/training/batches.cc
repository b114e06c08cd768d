#include "motley/control/training/batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "motley/adapt/learned_options.h"
#include "motley/control/training/splits.h"
#include "motley/plan/shares.h"
#include "motley/search/split/micro_batch_steps.h"
#include "motley/synth/ranks/accumulation.h"

namespace motley::control {
namespace {

/// Default limit of the batch, in first batches.
constexpr std::int64_t kUsualGrowth = 16;

constexpr std::size_t kMostGroups = 24;

/// One device needs two micro-batches to compare gradients, unless its plan has more.
constexpr std::int64_t kFewestMicroBatches = 2;

/// The policy's devices, fastest first, and their groups.
struct Devices {
  std::vector<adapt::LearnedDevice> known;
  std::vector<adapt::LearnedGroup> groups;
};

/// Micro-batches per step of several devices; constant, and a divisor of each device's samples.
std::int64_t micro_batches(const plan::Plan& plan) { return plan.replicas.front().micro_batches; }

Result<adapt::BatchBounds> find_bounds(const ChosenPlan& chosen, const BatchChoices& choices) {
  const std::int64_t batch = chosen.inputs.global_batch;
  const std::int64_t times = micro_batches(chosen.planned.plan);
  const std::int64_t first = choices.first_batch > 0 ? choices.first_batch : batch;
  if (batch % times != 0 || first % times != 0)
    return usage_error("cli.adapt",
                       fmt::format("--adapt batch: {} samples cannot be divided into {} equal "
                                   "micro-batches, which the plan has; take a multiple",
                                   batch % times != 0 ? batch : first, times));
  const std::int64_t least = choices.least > 0 ? choices.least : first;
  std::int64_t most = choices.most > 0 ? choices.most : kUsualGrowth * first;
  if (choices.most == 0 && choices.samples > 0)
    most = std::max(first, std::min(choices.samples, most));
  if (least > first || most < first)
    return usage_error("cli.batch-limits",
                       fmt::format("--batch-limits: found {}:{}, the training begins with {}, "
                                   "which must lie between them",
                                   least, most, first));
  // Rounded inward to multiples, like the first batch.
  return adapt::BatchBounds{static_cast<double>((least + times - 1) / times * times),
                            static_cast<double>(most / times * times)};
}

std::optional<DeviceId> only_device(const plan::Plan& plan) {
  const std::vector<plan::Member> members = plan::members(plan);
  return members.size() == 1 ? std::optional(members.front().device) : std::nullopt;
}

std::int64_t micro_batches_alone(const plan::Plan& plan) {
  return std::max(kFewestMicroBatches, micro_batches(plan));
}

/// Does batch norm use statistics per micro-batch? Then one device measures the noise of all
/// gradients, several devices of a few only (synth/noise/gradient_squares.h). These differ, so a
/// training stays on one device, or on several.
bool has_own_statistics(const ChosenPlan& chosen) {
  return search::repeats_statistics(
      search::micro_batches_of(chosen.planned.plan, chosen.inputs.graph()));
}

Result<Candidate> make_candidate(const Inputs& inputs, plan::Plan plan,
                                 const policy::UseBatch& batch) {
  const std::int64_t times = micro_batches(plan), alone = micro_batches_alone(plan);
  std::vector<DeviceId> devices;
  std::vector<std::int64_t> samples;
  plan.global_batch = 0;
  for (const policy::Share& share : batch.shares) {
    MOTLEY_ASSIGN(devices.emplace_back(), cluster::find_device(inputs.cluster, share.device));
    samples.push_back(share.samples);
    plan.global_batch += share.samples;
    if (share.samples % times != 0)
      return runtime_error("adapt.micro-batches",
                           fmt::format("{} samples of {} are no multiple of {} micro-batches",
                                       share.samples, share.device, times));
  }
  plan.replicas = plan::make_replicas(devices, samples);
  for (plan::Replica& replica : plan.replicas)
    replica.micro_batches = plan.replicas.size() == 1 ? alone : times;
  MOTLEY_RETURN_IF_ERROR(plan::verify_plan(plan, inputs.model->hash, inputs.cluster));
  Candidate candidate{describe_plan(plan, inputs.cluster), {std::move(plan), nullptr}};
  candidate.label =
      fmt::format("{} samples, {}", candidate.planned.plan.global_batch, candidate.label);
  candidate.lr_factor = batch.lr_factor;
  return candidate;
}

Result<Candidate> make_alone(const ChosenPlan& chosen, DeviceId id, std::int64_t batch) {
  return make_candidate(chosen.inputs, chosen.planned.plan,
                        {{{chosen.inputs.cluster.device(id).name, batch}}, 1});
}

/// Returns the prior of a device's whole step: its micro-batches and one update.
std::optional<adapt::CurvePrior> prior_alone(const ChosenPlan& chosen, DeviceId id,
                                             const adapt::DeviceLimits& limits) {
  const search::StepEvaluator* evaluator = chosen.priced.evaluator.get();
  if (evaluator == nullptr || !limits.prior) return std::nullopt;
  search::MicroBatches steps = search::micro_batches_of(chosen.planned.plan, chosen.inputs.graph());
  steps.times = micro_batches_alone(chosen.planned.plan);
  const search::MicroBatchSteps prices(*evaluator, steps);
  return adapt::CurvePrior{
      cost::stretch_samples(prices.curves(id, search::SplitEvaluator::Setting::kAlone),
                            steps.times),
      limits.prior->trust};
}

/// Returns the most samples that a single device's memory holds. 0: its step cannot be divided, or
/// its gradients are not counted.
std::int64_t most_alone(const ChosenPlan& chosen, const Adaptation& adaptation, DeviceId id,
                        std::int64_t most) {
  const std::int64_t unit = micro_batches(chosen.planned.plan);
  const auto fits = [&](std::int64_t units) {
    auto candidate = make_alone(chosen, id, units * unit);
    return candidate && lower_candidate(chosen.inputs, adaptation, *candidate) &&
           check_memory(chosen.inputs, candidate->planned);
  };
  std::int64_t holds = chosen.inputs.global_batch / unit, lacks = most / unit;
  if (!fits(holds)) return 0;
  if (!chosen.inputs.cluster.device(id).memory || fits(lacks)) return lacks * unit;
  while (lacks - holds > 1) {
    const std::int64_t middle = (holds + lacks) / 2;
    (fits(middle) ? holds : lacks) = middle;
  }
  return holds * unit;
}

std::int64_t least_samples(const graph::Graph& graph) {
  for (const graph::NamedSize& size : graph.sizes)
    if (size.name == "batch") return size.min;
  return 1;
}

/// Returns devices with their limits, fastest first, the plan's only device before others.
Result<std::vector<std::pair<DeviceId, adapt::DeviceLimits>>> find_order(const ChosenPlan& chosen,
                                                                         std::int64_t most) {
  const std::optional<DeviceId> only = only_device(chosen.planned.plan);
  std::vector<std::pair<DeviceId, adapt::DeviceLimits>> found;
  for (adapt::DeviceLimits& limits : find_limits(chosen, most)) {
    MOTLEY_ASSIGN(const DeviceId id, cluster::find_device(chosen.inputs.cluster, limits.device));
    if (limits.most < 1 && id != only) continue;
    found.emplace_back(id, std::move(limits));
  }
  const auto place = [&](DeviceId id) { return id == only ? 0 : slowness(chosen, id); };
  std::stable_sort(found.begin(), found.end(),
                   [&](const auto& a, const auto& b) { return place(a.first) < place(b.first); });
  if (found.size() > 1 && only && has_own_statistics(chosen)) found.resize(1);
  return found;
}

Result<Devices> find_devices(const ChosenPlan& chosen, const Adaptation& adaptation,
                             std::int64_t most, const BatchChoices& choices) {
  const cluster::Cluster& cluster = chosen.inputs.cluster;
  const plan::Plan& plan = chosen.planned.plan;
  const bool may_be_alone =
      choices.fewest_devices <= 1 && (only_device(plan) || !has_own_statistics(chosen));
  std::optional<search::MicroBatchSteps> prices;
  if (chosen.priced.evaluator)
    prices.emplace(*chosen.priced.evaluator, search::micro_batches_of(plan, chosen.inputs.graph()));
  MOTLEY_ASSIGN(auto found, find_order(chosen, most));
  Devices devices;
  std::vector<DeviceId> ids;
  const std::size_t every = (found.size() + kMostGroups - 1) / kMostGroups;
  for (auto& [id, limits] : found) {
    ids.push_back(id);
    const cluster::Node& node = cluster.nodes[cluster.device(id).node.index()];
    if (!node.price_per_hour && choices.objective.kind != adapt::ObjectiveKind::kTime)
      return usage_error(
          "cli.objective",
          "--objective: the cluster file has no price_per_hour of node '" + node.name + "'");
    adapt::LearnedDevice& device = devices.known.emplace_back();
    device.limits = std::move(limits);
    device.machine = node.name;
    device.per_hour = node.price_per_hour.value_or(0);
    // Only the first device is ever alone, unless the others may leave.
    if ((choices.is_elastic || ids.size() == 1) && may_be_alone)
      device.alone = {micro_batches_alone(plan) / micro_batches(plan),
                      most_alone(chosen, adaptation, id, most),
                      prior_alone(chosen, id, device.limits)};
    if (ids.size() < choices.fewest_devices) continue;
    adapt::LearnedGroup group{.devices = ids.size()};
    if (ids.size() == 1) {
      if (device.alone.most == 0) continue;
    } else if (ids.size() % every != 0 && ids.size() != found.size()) {
      continue;
    }
    if (prices && ids.size() > 1) group.exchanges = prices->group_times(ids);
    devices.groups.push_back(std::move(group));
  }
  if (devices.groups.empty())
    return usage_error(
        "cli.adapt",
        choices.fewest_devices > 1
            ? "--adapt batch: fewer devices have memory for it than --survive asks for"
            : "--adapt batch learns the noise of gradients from how those of devices, or of "
              "micro-batches of one device, differ: there is one device, and its step cannot be "
              "done in micro-batches");
  return devices;
}

/// Rounds each device's samples to multiples, and keeps the batch as nearly as possible.
std::vector<policy::Share> in_multiples(std::vector<policy::Share> shares, std::int64_t unit) {
  std::vector<double> parts;
  std::int64_t batch = 0;
  for (const policy::Share& share : shares) {
    parts.push_back(static_cast<double>(share.samples));
    batch += share.samples;
  }
  const std::vector<std::int64_t> units = plan::round_shares(parts, batch / unit);
  for (std::size_t i = 0; i < shares.size(); ++i) shares[i].samples = unit * units[i];
  std::erase_if(shares, [](const policy::Share& share) { return share.samples == 0; });
  return shares;
}

/// Returns the chosen plan, on one device in micro-batches. If its step cannot be divided, returns
/// the fastest split over several.
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
  if (choices.is_elastic && choices.policy != "motley")
    return usage_error("cli.policy", "--policy " + choices.policy +
                                         ": knows of no devices that come and go (--elastic)");
  if (!only_device(plan)) MOTLEY_RETURN_IF_ERROR(require_batch_split(chosen, "batch"));
  MOTLEY_ASSIGN(adapt::BatchBounds bounds, find_bounds(chosen, choices));
  auto adaptation = std::make_shared<Adaptation>();
  adaptation->batches =
      run::Batches{.first = choices.first_batch > 0 ? choices.first_batch : inputs.global_batch,
                   .most = static_cast<std::int64_t>(bounds.most)};
  adaptation->counts_squares = true;
  adaptation->costs = chosen.priced.costs;
  MOTLEY_ASSIGN(const Devices devices,
                find_devices(chosen, *adaptation, adaptation->batches->most, choices));
  const std::int64_t fewest =
      devices.groups.front().devices == 1 ? micro_batches_alone(plan) : micro_batches(plan);
  bounds.least =
      std::max(bounds.least, static_cast<double>(fewest * least_samples(inputs.graph())));
  adaptation->least_batch = static_cast<std::int64_t>(bounds.least);
  const auto is_sgd = plan.recipe.optimizer.kind == plan::OptimizerKind::kSgd;
  adapt::BatchSetting setting;
  setting.batch.initial_batch = static_cast<double>(adaptation->batches->first);
  setting.batch.bounds = bounds;
  setting.batch.rule = choices.rule.value_or(is_sgd ? adapt::LearningRateRule::kAdaScale
                                                    : adapt::LearningRateRule::kSquareRoot);
  setting.batch.objective = choices.objective;
  setting.batch.change = kChangeCost;
  setting.batch.iterations = choices.steps;
  setting.samples_per_pass = choices.samples;
  const adapt::LearnedOptions believed(devices.known, devices.groups, micro_batches(plan));
  adaptation->make_policy = [believed, setting, policy = choices.policy,
                             policies = choices.policies](const Adaptation&) {
    return adapt::make_batch_policy(policy, setting,
                                    std::make_unique<adapt::LearnedOptions>(believed), policies);
  };
  MOTLEY_ASSIGN(Candidate first, first_candidate(chosen, *adaptation, believed));
  adaptation->candidates.push_back(std::move(first));
  MOTLEY_ASSIGN(adaptation->policy, adaptation->make_policy(*adaptation));
  for (const adapt::LearnedDevice& device : devices.known) {
    MOTLEY_ASSIGN(adaptation->spare.emplace_back(),
                  cluster::find_device(inputs.cluster, device.limits.device));
  }
  adaptation->batch = [&inputs, plan](const policy::UseBatch& batch) {
    return make_candidate(inputs, plan, batch);
  };
  return adaptation;
}

Replan replan_batch(const ChosenPlan& chosen, const Adaptation& adaptation, Replan replan) {
  return [&chosen, &adaptation, replan = std::move(replan)](
             const std::vector<DeviceId>& devices, const BatchNow& now) -> Result<Candidate> {
    MOTLEY_ASSIGN(Candidate plain, replan(devices, now));
    const std::int64_t times = micro_batches(chosen.planned.plan);
    MOTLEY_ASSIGN(
        Candidate made,
        adaptation.batch({in_multiples(shares_of(plain.planned.plan, chosen.inputs.cluster), times),
                          now.lr_factor}));
    const bool is_alone = made.planned.plan.replicas.size() == 1;
    if (is_alone && !lower_candidate(chosen.inputs, adaptation, made)) return plain;
    made.priced = plain.priced;
    return made;
  };
}

}  // namespace motley::control
