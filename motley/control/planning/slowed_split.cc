#include "motley/control/planning/slowed_split.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "motley/base/text.h"
#include "motley/search/split/micro_batch_steps.h"
#include "motley/search/split/split_search.h"
#include "motley/search/split/step_model.h"
#include "motley/simulate/drawn_times.h"

namespace motley::control {
namespace {

using search::SplitEvaluator;

void scale(double factor, cost::Curve& curve) {
  for (auto& [samples, seconds] : curve.points) seconds *= factor;
}

cost::StepCurves scaled(cost::StepCurves curves, double factor) {
  for (cost::Curve& ready : curves.ready) scale(factor, ready);
  scale(factor, curves.end);
  for (double& update : curves.update) update *= factor;
  return curves;
}

/// Another evaluator's prices with slower devices.
class SlowedEvaluator : public SplitEvaluator {
 public:
  SlowedEvaluator(const SplitEvaluator& exact, const Inputs& inputs, const DeviceSetting& setting)
      : exact_(exact) {
    for (const DeviceId device : inputs.devices) {
      const double factor =
          setting.slowness ? setting.slowness(inputs.cluster.device(device).name) : 1;
      for (const Setting each : {Setting::kAlone, Setting::kShared})
        curves_[{device, each}] = scaled(exact.curves(device, each), factor);
    }
  }
  const search::StepCurves& curves(DeviceId device, Setting setting) const override {
    return curves_.at({device, setting});
  }
  search::GroupExchanges group_times(const std::vector<DeviceId>& group) const override {
    return exact_.group_times(group);
  }
  std::vector<search::GroupExchanges> least_times(const std::vector<DeviceId>& pool,
                                                  std::size_t most) const override {
    return exact_.least_times(pool, most);
  }
  Bytes peak_bytes(DeviceId device, std::int64_t samples, Setting setting) const override {
    return exact_.peak_bytes(device, samples, setting);
  }
  Result<Seconds> step_time(const plan::Plan& plan) const override {
    search::BatchSplit split;
    for (const plan::Member& member : plan::members(plan)) {
      split.devices.push_back(member.device);
      split.samples.push_back(member.samples);
    }
    return Seconds(search::model_step(*this, split));
  }
  Result<plan::Price> price(const plan::Plan& plan) const override {
    plan::Price price;
    MOTLEY_ASSIGN(price.step, step_time(plan));
    return price;
  }

 private:
  const SplitEvaluator& exact_;
  std::map<std::pair<DeviceId, Setting>, search::StepCurves> curves_;
};

Result<std::pair<search::BatchSplit, Seconds>> find_best(const ChosenPlan& chosen,
                                                         const DeviceSetting& setting) {
  const Inputs& inputs = chosen.inputs;
  if (!chosen.priced.evaluator)
    return usage_error("split.prices", "the devices' times are not known, so no split is found");
  plan::Problem problem = make_problem(inputs, {});
  if (setting.batch > 0) problem.global_batch = setting.batch;
  const search::MicroBatches steps = search::micro_batches_of(chosen.planned.plan, inputs.graph());
  if (problem.global_batch % steps.times != 0)
    return usage_error("split.micro-batches",
                       fmt::format("{} samples cannot be divided into {} equal micro-batches",
                                   problem.global_batch, steps.times));
  problem.global_batch /= steps.times;
  std::erase_if(problem.devices, [&](DeviceId device) {
    return setting.gone.contains(inputs.cluster.device(device).name);
  });
  if (problem.devices.empty())
    return tl::make_unexpected(Error{ErrorKind::kInfeasible, "split.devices", "no device is left"});
  const search::MicroBatchSteps exact(*chosen.priced.evaluator, steps);
  const SlowedEvaluator evaluator(exact, inputs, setting);
  MOTLEY_ASSIGN(search::SplitSpace space, search::SplitSpace::make(problem, evaluator));
  for (;;) {
    const auto best = search::find_best_split(space).best;
    if (!best)
      return tl::make_unexpected(Error{ErrorKind::kInfeasible, "split.infeasible",
                                       join(space.explain_infeasible(), "; ")});
    if (space.lower_caps(*best)) continue;
    std::pair found(*best, Seconds(search::model_step(evaluator, *best)));
    for (std::int64_t& samples : found.first.samples) samples *= steps.times;
    return found;
  }
}

}  // namespace

Result<std::vector<policy::Share>> find_split(const ChosenPlan& chosen,
                                              const DeviceSetting& setting) {
  MOTLEY_ASSIGN(const auto found, find_best(chosen, setting));
  const search::BatchSplit& best = found.first;
  std::vector<policy::Share> shares;
  for (std::size_t i = 0; i < best.devices.size(); ++i)
    shares.push_back({chosen.inputs.cluster.device(best.devices[i]).name, best.samples[i]});
  return shares;
}

std::optional<Seconds> best_step(const ChosenPlan& chosen, const DeviceSetting& setting) {
  const auto found = find_best(chosen, setting);
  return found ? std::optional(found->second) : std::nullopt;
}

Slowness slowness_at(const std::vector<simulate::SlowDown>& slow_downs, trace::Nanoseconds now) {
  Slowness slowness;
  for (const simulate::SlowDown& slow : slow_downs) {
    if (simulate::whole_nanoseconds(slow.from) > now ||
        simulate::whole_nanoseconds(slow.until) <= now)
      continue;
    slowness.emplace(slow.device, 1).first->second *= slow.factor;
  }
  return slowness;
}

Result<std::optional<std::vector<policy::Share>>> find_split_if_any(
    const ChosenPlan& chosen, const std::set<std::string>& gone, const Slowness& slowness,
    std::int64_t batch) {
  DeviceSetting setting{.gone = gone, .batch = batch};
  setting.slowness = [&](const std::string& device) {
    const auto found = slowness.find(device);
    return found == slowness.end() ? 1 : found->second;
  };
  auto shares = find_split(chosen, setting);
  if (shares) return std::optional(*std::move(shares));
  if (shares.error().kind == ErrorKind::kInfeasible) return std::nullopt;
  return tl::make_unexpected(shares.error());
}

}  // namespace motley::control
