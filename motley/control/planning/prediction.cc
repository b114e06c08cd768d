#include "motley/control/planning/prediction.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "motley/cost/profile_cost.h"
#include "motley/search/price/expected_step.h"
#include "motley/search/price/group_cost.h"

namespace motley::control {
namespace {

cost::Origin worst_origin(const Inputs& inputs, const search::Costs& costs,
                          const plan::Plan& plan) {
  cost::Origin worst = cost::Origin::kMeasured;
  for (const plan::Member& member : plan::members(plan))
    worst = std::max(worst, costs.grounds.at(inputs.cluster.device(member.device).name).origin);
  return worst;
}

/// Adds the framework's memory beside tensors to an interval.
cost::PredictionInterval with_framework(const cluster::Device& device,
                                        const cost::PredictionInterval& tensors) {
  const auto with = [&](double bytes) {
    return static_cast<double>(cost::with_framework(device, Bytes(std::llround(bytes))).value);
  };
  return {with(tensors.low), with(tensors.value), with(tensors.high)};
}

/// Returns the prediction of a price; each member has the price of its kind (`of_rank`).
Result<Predicted> say(const Inputs& inputs, const plan::Plan& plan, const search::Costs& costs,
                      const search::PlanPrice& price) {
  Predicted predicted;
  predicted.origin = worst_origin(inputs, costs, plan);
  const cost::Experience of_step =
      cost::find_experience(costs.earlier, prediction_entry(inputs, "step"), predicted.origin);
  predicted.step = of_step.around(price.step.value);
  predicted.basis = of_step.basis;
  const cost::PredictionEntry memory_entry = prediction_entry(inputs, "memory");
  std::map<cost::Origin, cost::Experience> memory;
  const std::vector<plan::Member> members = plan::members(plan);
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    const cluster::Device& about = inputs.cluster.device(members[rank].device);
    DevicePrediction device{about.name, price.kinds.devices[price.of_rank[rank]]};
    const Bytes total = device.price.memory.total;
    device.framework = cost::framework_bytes(about, total);
    device.is_framework_measured = about.framework.has_value();
    device.grounds = costs.grounds.at(about.name);
    const auto [of_memory, is_new] = memory.try_emplace(device.grounds.origin);
    if (is_new)
      of_memory->second = cost::find_experience(costs.earlier, memory_entry, device.grounds.origin);
    device.peak = with_framework(about, of_memory->second.around(static_cast<double>(total.value)));
    predicted.devices.push_back(std::move(device));
  }
  return predicted;
}

}  // namespace

cost::PredictionEntry prediction_entry(const Inputs& inputs, const char* quantity) {
  return {profile_subject(inputs), cluster::cluster_hash(inputs.cluster), quantity, 0, 0};
}

Result<PricedPlan> price_planned(const Inputs& inputs, const Planned& planned,
                                 const search::Costs& costs, int steps) {
  const program::Program& program = *planned.program;
  const auto model = costs.model(inputs.cluster);
  MOTLEY_ASSIGN(const auto times, model->all_times(program));
  const std::vector<std::string> all;
  MOTLEY_ASSIGN(search::PricedProgram priced,
                search::price_program(program, all, *model, times, steps));
  search::PlanPrice price{std::move(priced.price), {}, {}};
  for (std::size_t rank = 0; rank < program.devices.size(); ++rank) price.of_rank.push_back(rank);
  const search::GroupCost known(*model, all, search::known_times(program, times));
  MOTLEY_ASSIGN(price.step, search::expected_step(price.kinds.step, program, known, costs.jitter));
  return PricedPlan{std::move(price), std::move(priced.trace)};
}

Result<Predicted> predict(const Inputs& inputs, const Planned& planned, const search::Costs& costs,
                          int steps) {
  MOTLEY_ASSIGN(PricedPlan priced, price_planned(inputs, planned, costs, steps));
  MOTLEY_ASSIGN(Predicted predicted, say(inputs, planned.plan, costs, priced.price));
  predicted.trace = std::move(priced.trace);
  if (inputs.survive > 0) predicted.mirrors = find_mirror_price(*planned.program);
  return predicted;
}

Result<Predicted> foresee(const Inputs& inputs, const plan::Plan& plan, const Priced& priced) {
  if (inputs.survive > 0) {
    MOTLEY_ASSIGN(const Planned planned, lower_plan(inputs, plan));
    return predict(inputs, planned, *priced.costs, 1);
  }
  MOTLEY_ASSIGN(const search::PlanPrice price, priced.evaluator->price_parts(plan));
  return say(inputs, plan, *priced.costs, price);
}

void add_variation(const Predicted& predicted, plan::PlanOutcome& outcome) {
  const double factor = predicted.seconds() / outcome.predicted_step;
  for (Seconds* step :
       {&outcome.predicted_step, &outcome.equal_split.step, &outcome.best_single.step})
    *step = *step * factor;
}

Result<std::optional<Predicted>> if_known(Result<Predicted> predicted, Listener& listener) {
  if (predicted) return std::optional<Predicted>(std::move(*predicted));
  const Error& error = predicted.error();
  if (!error.code.starts_with("cost.")) return tl::make_unexpected(error);
  listener.note("no prediction, as not all times are known: " + error.message);
  return std::optional<Predicted>();
}

}  // namespace motley::control
