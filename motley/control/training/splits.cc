#include "motley/control/training/splits.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "motley/adapt/unit_policy.h"
#include "motley/cost/device_keys.h"
#include "motley/search/split/micro_batch_steps.h"

namespace motley::control {
namespace {

constexpr auto kInAGroup = search::SplitEvaluator::Setting::kShared;

/// Prior uncertainty of a step, from a profile of these devices or others of their kind.
constexpr double kTrust = 0.15;

using Peak = std::function<Bytes(std::int64_t)>;

/// Memory without prices: operators' scratch is unknown.
Peak lowered_peak(const cluster::Device& device, const search::MicroBatches& steps) {
  return [&](std::int64_t samples) {
    const Bytes tensors = search::peak_of_tensors(steps, steps.times * samples, kInAGroup);
    return tensors.value == std::numeric_limits<std::int64_t>::max()
               ? tensors
               : cost::with_framework(device, tensors);
  };
}

/// Returns the most samples of a micro-batch that a device in a group can hold, up to `most`.
std::int64_t find_most(const cluster::Device& device, const Peak& peak, std::int64_t most) {
  if (!device.memory) return most;
  std::int64_t fits = 0, lacks = most + 1;
  while (lacks - fits > 1) {
    const std::int64_t middle = (fits + lacks) / 2;
    (peak(middle) <= *device.memory ? fits : lacks) = middle;
  }
  return fits;
}

/// Returns find_limits for one micro-batch; samples and limits are per micro-batch.
std::vector<adapt::DeviceLimits> limits_of_one(const ChosenPlan& chosen,
                                               const search::MicroBatches& steps,
                                               std::int64_t most) {
  const Inputs& inputs = chosen.inputs;
  std::vector<adapt::DeviceLimits> limits;
  if (chosen.priced.evaluator == nullptr) {
    for (const plan::Member& member : plan::members(chosen.planned.plan)) {
      const cluster::Device& device = inputs.cluster.device(member.device);
      limits.push_back(
          {.device = device.name, .most = find_most(device, lowered_peak(device, steps), most)});
    }
    return limits;
  }
  const search::MicroBatchSteps prices(*chosen.priced.evaluator, steps);
  for (const DeviceId id : inputs.devices) {
    const cluster::Device& device = inputs.cluster.device(id);
    const Peak peak = [&](std::int64_t samples) {
      return prices.peak_bytes(id, samples, kInAGroup);
    };
    adapt::DeviceLimits& own = limits.emplace_back();
    own.device = device.name;
    own.least = 0;
    own.most = find_most(device, peak, most);
    own.prior = adapt::CurvePrior{prices.curves(id, kInAGroup), kTrust};
  }
  return limits;
}

/// Returns the predicted exchanges of the fastest two, three, ... devices; none without prices.
std::vector<cost::GroupExchanges> believed_exchanges(const ChosenPlan& chosen) {
  std::vector<cost::GroupExchanges> believed;
  if (chosen.priced.evaluator == nullptr) return believed;
  const search::MicroBatchSteps prices(
      *chosen.priced.evaluator,
      search::micro_batches_of(chosen.planned.plan, chosen.inputs.graph()));
  std::vector<DeviceId> devices = chosen.inputs.devices;
  std::stable_sort(devices.begin(), devices.end(), [&](DeviceId a, DeviceId b) {
    return slowness(chosen, a) < slowness(chosen, b);
  });
  for (std::size_t number = 2; number <= devices.size(); ++number) {
    const auto end = devices.begin() + static_cast<std::ptrdiff_t>(number);
    believed.push_back(prices.group_times({devices.begin(), end}));
  }
  return believed;
}

}  // namespace

double slowness(const ChosenPlan& chosen, DeviceId id) {
  const Inputs& inputs = chosen.inputs;
  if (const auto* evaluator = chosen.priced.evaluator.get())
    return evaluator->curves(id, kInAGroup)
        .end.at(static_cast<double>(inputs.global_batch) /
                static_cast<double>(inputs.devices.size()));
  return 1 / inputs.cluster.device(id).speed;
}

Result<void> require_batch_split(const ChosenPlan& chosen, std::string_view adapt) {
  const plan::Plan& plan = chosen.planned.plan;
  if (!plan::splits_operators(plan) && !plan::has_stages(plan)) return {};
  return usage_error(
      "cli.adapt",
      fmt::format("--adapt {} goes with plans that split the batch alone, this one is: {}; add "
                  "--planner split",
                  adapt, describe_plan(plan, chosen.inputs.cluster)));
}

std::vector<adapt::DeviceLimits> find_limits(const ChosenPlan& chosen, std::int64_t most) {
  const search::MicroBatches steps =
      search::micro_batches_of(chosen.planned.plan, chosen.inputs.graph());
  std::vector<adapt::DeviceLimits> limits = limits_of_one(chosen, steps, most / steps.times);
  for (adapt::DeviceLimits& each : limits) {
    each.most *= steps.times;
    if (each.prior)
      each.prior->curves = cost::stretch_samples(std::move(each.prior->curves), steps.times);
  }
  return limits;
}

Result<std::shared_ptr<Adaptation>> adapt_split(const ChosenPlan& chosen,
                                                const std::optional<Predicted>& predicted,
                                                const std::string& policy,
                                                adapt::SplitPolicies policies) {
  const Inputs& inputs = chosen.inputs;
  const plan::Plan& plan = chosen.planned.plan;
  MOTLEY_RETURN_IF_ERROR(require_batch_split(chosen, "split"));
  const std::int64_t times = plan.replicas.front().micro_batches;
  if (inputs.global_batch % times != 0)
    return usage_error("cli.adapt",
                       fmt::format("--adapt split: {} samples cannot be divided into {} equal "
                                   "micro-batches, which the plan has; take a multiple",
                                   inputs.global_batch, times));
  auto adaptation = std::make_shared<Adaptation>();
  Candidate first{describe_plan(plan, inputs.cluster), chosen.planned};
  first.predicted = predicted;
  adaptation->candidates.push_back(std::move(first));
  adapt::SplitSetting setting{
      .devices = limits_of_one(chosen, search::micro_batches_of(plan, inputs.graph()),
                               inputs.global_batch / times),
      .change_cost = kChangeCost,
      .exchanges = believed_exchanges(chosen)};
  adaptation->make_policy = [policy, setting, policies,
                             times](const Adaptation&) -> Result<std::unique_ptr<policy::Policy>> {
    MOTLEY_ASSIGN(auto made, adapt::make_split_policy(policy, setting, policies));
    if (times > 1) made = std::make_unique<adapt::UnitPolicy>(std::move(made), times);
    return made;
  };
  MOTLEY_ASSIGN(adaptation->policy, adaptation->make_policy(*adaptation));
  if (chosen.priced.evaluator) adaptation->spare = inputs.devices;
  adaptation->split = [&inputs, plan,
                       times](const std::vector<policy::Share>& shares) -> Result<Candidate> {
    std::vector<DeviceId> devices;
    std::vector<std::int64_t> samples;
    for (const policy::Share& share : shares) {
      MOTLEY_ASSIGN(devices.emplace_back(), cluster::find_device(inputs.cluster, share.device));
      samples.push_back(share.samples);
    }
    plan::Plan split = plan;
    split.replicas = plan::make_replicas(devices, samples);
    for (plan::Replica& replica : split.replicas) replica.micro_batches = times;
    MOTLEY_RETURN_IF_ERROR(plan::verify_plan(split, inputs.model->hash, inputs.cluster));
    return Candidate{describe_plan(split, inputs.cluster), {std::move(split), nullptr}};
  };
  return adaptation;
}

}  // namespace motley::control
