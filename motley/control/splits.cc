#include "motley/control/splits.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "motley/adapt/policies.h"
#include "motley/cost/device_keys.h"

namespace motley::control {
namespace {

constexpr auto kInAGroup = search::SplitEvaluator::Setting::kShared;

/// Of a profile that was made on these devices or others of their kind: by how much a step of a
/// device is off before it is seen.
constexpr double kTrust = 0.15;

/// A change takes a gap between two steps, and a first step that is longer (docs/benchmarks.md).
constexpr Seconds kChangeCost{0.06};

/// The most samples that a device's memory holds in a group.
std::int64_t find_most(const search::StepEvaluator& evaluator, const cluster::Device& device,
                       DeviceId id, std::int64_t batch) {
  if (!device.memory) return batch;
  std::int64_t fits = 0, lacks = batch + 1;
  while (lacks - fits > 1) {
    const std::int64_t middle = (fits + lacks) / 2;
    (evaluator.peak_bytes(id, middle, kInAGroup) <= *device.memory ? fits : lacks) = middle;
  }
  return fits;
}

std::vector<adapt::DeviceLimits> find_limits(const ChosenPlan& chosen) {
  const Inputs& inputs = chosen.inputs;
  std::vector<adapt::DeviceLimits> limits;
  const search::StepEvaluator* evaluator = chosen.priced.evaluator.get();
  if (evaluator == nullptr) {
    for (const plan::Member& member : plan::members(chosen.planned.plan))
      limits.push_back(
          {.device = inputs.cluster.device(member.device).name, .most = inputs.global_batch});
    return limits;
  }
  for (const DeviceId id : inputs.devices) {
    const cluster::Device& device = inputs.cluster.device(id);
    adapt::DeviceLimits& own = limits.emplace_back();
    own.device = device.name;
    own.least = 0;
    own.most = find_most(*evaluator, device, id, inputs.global_batch);
    own.prior = adapt::CurvePrior{evaluator->curves(id, kInAGroup), kTrust};
  }
  return limits;
}

}  // namespace

Result<std::shared_ptr<Adaptation>> adapt_split(const ChosenPlan& chosen,
                                                const std::optional<Predicted>& predicted,
                                                const std::string& policy) {
  const Inputs& inputs = chosen.inputs;
  const plan::Plan& plan = chosen.planned.plan;
  const bool is_split = !plan::splits_operators(plan) && !plan::has_stages(plan) &&
                        plan.replicas[0].micro_batches == 1;
  if (!is_split)
    return usage_error("cli.adapt",
                       "--adapt split goes with plans that split the batch alone, this one is: " +
                           describe_plan(plan, inputs.cluster) + "; add --planner split");
  auto adaptation = std::make_shared<Adaptation>();
  Candidate first{describe_plan(plan, inputs.cluster), chosen.planned};
  first.predicted = predicted;
  adaptation->candidates.push_back(std::move(first));
  adapt::SplitSetting setting{.devices = find_limits(chosen), .change_cost = kChangeCost};
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
