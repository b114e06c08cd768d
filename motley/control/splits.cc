#include "motley/control/splits.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "motley/adapt/policies.h"
#include "motley/cost/device_keys.h"
#include "motley/program/memory.h"
#include "motley/synth/lower.h"

namespace motley::control {
namespace {

constexpr auto kInAGroup = search::SplitEvaluator::Setting::kShared;

/// Of a profile that was made on these devices or others of their kind: by how much a step of a
/// device is off before it is seen.
constexpr double kTrust = 0.15;

/// What a device needs in a group. Without prices nothing is known of what operators need beside
/// their results.
Bytes peak_of(const ChosenPlan& chosen, DeviceId id, std::int64_t samples) {
  const Inputs& inputs = chosen.inputs;
  if (const auto* evaluator = chosen.priced.evaluator.get())
    return evaluator->peak_bytes(id, samples, kInAGroup);
  const auto program =
      synth::lower_first(inputs.graph(), {.samples = samples, .ranks = 2}, inputs.lowering);
  if (!program) return Bytes(std::numeric_limits<std::int64_t>::max());
  return cost::with_framework(inputs.cluster.device(id), program::find_memory_peak(*program).total);
}

/// The most samples that a device's memory holds in a group.
std::int64_t find_most(const ChosenPlan& chosen, DeviceId id, std::int64_t batch) {
  const cluster::Device& device = chosen.inputs.cluster.device(id);
  if (!device.memory) return batch;
  std::int64_t fits = 0, lacks = batch + 1;
  while (lacks - fits > 1) {
    const std::int64_t middle = (fits + lacks) / 2;
    (peak_of(chosen, id, middle) <= *device.memory ? fits : lacks) = middle;
  }
  return fits;
}

}  // namespace

Result<void> require_batch_split(const ChosenPlan& chosen, std::string_view adapt) {
  const plan::Plan& plan = chosen.planned.plan;
  if (!plan::splits_operators(plan) && !plan::has_stages(plan) &&
      plan.replicas[0].micro_batches == 1)
    return {};
  return usage_error(
      "cli.adapt",
      fmt::format("--adapt {} goes with plans that split the batch alone, this one is: {}; add "
                  "--planner split",
                  adapt, describe_plan(plan, chosen.inputs.cluster)));
}

std::vector<adapt::DeviceLimits> find_limits(const ChosenPlan& chosen, std::int64_t most) {
  const Inputs& inputs = chosen.inputs;
  std::vector<adapt::DeviceLimits> limits;
  const search::StepEvaluator* evaluator = chosen.priced.evaluator.get();
  if (evaluator == nullptr) {
    for (const plan::Member& member : plan::members(chosen.planned.plan))
      limits.push_back({.device = inputs.cluster.device(member.device).name,
                        .most = find_most(chosen, member.device, most)});
    return limits;
  }
  for (const DeviceId id : inputs.devices) {
    const cluster::Device& device = inputs.cluster.device(id);
    adapt::DeviceLimits& own = limits.emplace_back();
    own.device = device.name;
    own.least = 0;
    own.most = find_most(chosen, id, most);
    own.prior = adapt::CurvePrior{evaluator->curves(id, kInAGroup), kTrust};
  }
  return limits;
}

Result<std::shared_ptr<Adaptation>> adapt_split(const ChosenPlan& chosen,
                                                const std::optional<Predicted>& predicted,
                                                const std::string& policy) {
  const Inputs& inputs = chosen.inputs;
  const plan::Plan& plan = chosen.planned.plan;
  MOTLEY_RETURN_IF_ERROR(require_batch_split(chosen, "split"));
  auto adaptation = std::make_shared<Adaptation>();
  Candidate first{describe_plan(plan, inputs.cluster), chosen.planned};
  first.predicted = predicted;
  adaptation->candidates.push_back(std::move(first));
  adapt::SplitSetting setting{.devices = find_limits(chosen, inputs.global_batch),
                              .change_cost = kChangeCost};
  adaptation->make_policy = [policy, setting](const Adaptation&) {
    return adapt::make_split_policy(policy, setting);
  };
  MOTLEY_ASSIGN(adaptation->policy, adaptation->make_policy(*adaptation));
  if (chosen.priced.evaluator) adaptation->spare = inputs.devices;
  adaptation->split = [&inputs,
                       plan](const std::vector<policy::Share>& shares) -> Result<Candidate> {
    std::vector<DeviceId> devices;
    std::vector<std::int64_t> samples;
    for (const policy::Share& share : shares) {
      MOTLEY_ASSIGN(devices.emplace_back(), cluster::find_device(inputs.cluster, share.device));
      samples.push_back(share.samples);
    }
    plan::Plan split = plan;
    split.replicas = plan::make_replicas(devices, samples);
    MOTLEY_RETURN_IF_ERROR(plan::verify_plan(split, inputs.model->hash, inputs.cluster));
    return Candidate{describe_plan(split, inputs.cluster), {std::move(split), nullptr}};
  };
  return adaptation;
}

}  // namespace motley::control
