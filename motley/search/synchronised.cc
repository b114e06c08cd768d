#include "motley/search/synchronised.h"

#include <fmt/format.h>

#include <algorithm>

#include "motley/base/text.h"
#include "motley/search/region/random_region.h"
#include "motley/search/spmd/spmd_planner.h"

namespace motley::search {
namespace {

using Kind = Sync::Kind;

std::vector<DeviceId> devices_of(const plan::Plan& plan) {
  std::vector<DeviceId> devices;
  for (const plan::Member& member : plan::members(plan)) devices.push_back(member.device);
  return devices;
}

OwnerShares equal_shares(const std::vector<DeviceId>& devices) {
  OwnerShares shares;
  for (const DeviceId device : devices) shares[device] = 1;
  return shares;
}

}  // namespace

/// Finds the owners to try; empty shares: none.
Result<std::vector<Synchronised::Choice>> Synchronised::find_choices(const plan::Problem& problem,
                                                                     const plan::Plan& plan) const {
  using Choices = std::vector<Choice>;
  if (sync_.kind == Kind::kAllReduce) return Choices{{{}, "all holders"}};
  DeviceId server;
  if (sync_.kind == Kind::kServer) {
    MOTLEY_ASSIGN(server, cluster::find_device(*problem.cluster, sync_.server));
  }
  if (plan.replicas.size() == 1)
    return usage_error("search.sync",
                       "--sync: the best plan has one replica, so no gradients are summed between "
                       "replicas; leave it out, or choose another plan (--planner equal, "
                       "--batch-split)");
  const std::vector<DeviceId> used = devices_of(plan);
  if (sync_.kind == Kind::kOwners) {
    Choices choices{{equal_shares(used), "owners of equal parts"}};
    if (inputs_.costs == nullptr) return choices;
    const auto model = inputs_.costs->model(*problem.cluster);
    MOTLEY_ASSIGN(auto shares, find_shares_by_links(*model, *problem.cluster, used));
    if (shares) choices.push_back({*std::move(shares), "owners by what links carry"});
    return choices;
  }
  if (std::find(used.begin(), used.end(), server) == used.end())
    return usage_error("search.sync",
                       fmt::format("--sync: the plan does not use {}; a server computes a part of "
                                   "the batch too, so name one of the plan's devices",
                                   sync_.server));
  return Choices{{{{server, 1.0}}, sync_.server + " as a server"}};
}

Result<std::vector<Synchronised::Priced>> Synchronised::price(const std::vector<Choice>& choices,
                                                              const plan::Plan& plan) const {
  std::vector<Priced> found;
  for (const Choice& choice : choices) {
    Priced with{plan, {}, choice.who};
    with.plan.owners.clear();
    if (!choice.shares.empty()) with.plan.owners = {{{"*"}, choice.shares}};
    MOTLEY_ASSIGN(with.price, inputs_.evaluator->price(with.plan));
    found.push_back(std::move(with));
  }
  return found;
}

Result<plan::PlanOutcome> Synchronised::plan(const plan::Problem& problem) const {
  MOTLEY_ASSIGN(plan::PlanOutcome outcome, planner_->plan(problem));
  if (!outcome.plan) return outcome;
  MOTLEY_ASSIGN(const std::vector<Choice> choices, find_choices(problem, *outcome.plan));
  const bool has_owners = sync_.kind != Kind::kAllReduce;
  if (!has_owners && outcome.plan->owners.empty()) return outcome;
  MOTLEY_ASSIGN(const std::vector<Priced> priced, price(choices, *outcome.plan));
  outcome.considered += static_cast<std::int64_t>(priced.size());
  std::string others = format_seconds(outcome.predicted_step) + " as the planner chose";
  for (const Priced& each : priced)
    others += fmt::format(", {} with {}", format_seconds(each.price.step), each.who);
  outcome.plan.reset();
  outcome.alternatives.clear();
  if (has_owners) outcome.lower_bound = Seconds(0);
  for (const Priced& each : priced) {
    std::vector<std::string> why = {
        fmt::format("gradients are summed by {}, as asked for; a step takes {}", each.who, others)};
    MOTLEY_RETURN_IF_ERROR(take_better(problem, each.plan, each.price, std::move(why), outcome));
  }
  if (outcome.plan) return outcome;
  outcome.reason = plan::Reason::kInfeasible;
  outcome.peak.clear();
  outcome.idle = problem.devices;
  outcome.why =
      find_lacking(*problem.cluster, devices_of(priced.back().plan), priced.back().price.peaks);
  return outcome;
}

}  // namespace motley::search
