#include "motley/search/synchronised.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "motley/base/text.h"
#include "motley/search/region/random_region.h"
#include "motley/search/spmd/spmd_planner.h"

namespace motley::search {
namespace {

std::vector<DeviceId> devices_of(const plan::Plan& plan) {
  std::vector<DeviceId> devices;
  for (const plan::Member& member : plan::members(plan)) devices.push_back(member.device);
  return devices;
}

}  // namespace

Result<plan::Plan> Synchronised::with_owners(const plan::Problem& problem, plan::Plan plan) const {
  plan.owners.clear();
  if (sync_.kind == Sync::Kind::kAllReduce) return plan;
  DeviceId server;
  if (sync_.kind == Sync::Kind::kServer) {
    MOTLEY_ASSIGN(server, cluster::find_device(*problem.cluster, sync_.server));
  }
  if (plan.replicas.size() == 1)
    return usage_error("search.sync",
                       "--sync: the best plan has one replica, so no gradients are summed between "
                       "replicas; leave it out, or choose another plan (--planner equal, "
                       "--batch-split)");
  plan::Owners& owners = plan.owners.emplace_back();
  owners.parameters = {"*"};
  const std::vector<DeviceId> used = devices_of(plan);
  if (sync_.kind == Sync::Kind::kOwners) {
    for (const DeviceId device : used) owners.shares[device] = 1;
    return plan;
  }
  if (std::find(used.begin(), used.end(), server) == used.end())
    return usage_error("search.sync",
                       fmt::format("--sync: the plan does not use {}; a server computes a part of "
                                   "the batch too, so name one of the plan's devices",
                                   sync_.server));
  owners.shares[server] = 1;
  return plan;
}

Result<plan::PlanOutcome> Synchronised::plan(const plan::Problem& problem) const {
  MOTLEY_ASSIGN(plan::PlanOutcome outcome, planner_->plan(problem));
  if (!outcome.plan) return outcome;
  MOTLEY_ASSIGN(const plan::Plan plan, with_owners(problem, *outcome.plan));
  if (plan == *outcome.plan) return outcome;
  MOTLEY_ASSIGN(const plan::Price price, inputs_.evaluator->price(plan));
  ++outcome.considered;
  outcome.plan.reset();
  outcome.alternatives.clear();
  if (!plan.owners.empty()) outcome.lower_bound = Seconds(0);
  std::vector<std::string> why = {fmt::format(
      "{} sum gradients, as asked for; as the planner chose, a step takes {}",
      plan.owners.empty() ? "all holders" : "owners", format_seconds(outcome.predicted_step))};
  MOTLEY_ASSIGN(const bool fits, take_better(problem, plan, price, std::move(why), outcome));
  if (fits) return outcome;
  outcome.reason = plan::Reason::kInfeasible;
  outcome.peak.clear();
  outcome.idle = problem.devices;
  outcome.why = find_lacking(*problem.cluster, devices_of(plan), price.peaks);
  return outcome;
}

}  // namespace motley::search
