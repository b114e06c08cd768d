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

std::vector<plan::Owners> owners_of_all(OwnerShares shares) { return {{{"*"}, std::move(shares)}}; }

OwnerShares equal_shares(const std::vector<DeviceId>& devices) {
  OwnerShares shares;
  for (const DeviceId device : devices) shares[device] = 1;
  return shares;
}

std::string who_sums(const plan::Plan& plan) {
  return plan.owners.empty() ? "all holders" : "owners";
}

}  // namespace

Result<std::optional<OwnersByLinks>> Synchronised::by_links(
    const plan::Problem& problem, const std::vector<DeviceId>& devices) const {
  if (inputs_.costs == nullptr) return std::nullopt;
  const auto model = inputs_.costs->model(*problem.cluster);
  return find_owners_by_links(*model, *problem.cluster, devices);
}

/// Finds the owners to try.
Result<Synchronised::Choices> Synchronised::find_choices(const plan::Problem& problem,
                                                         const plan::Plan& plan) const {
  if (sync_.kind == Kind::kAllReduce) return Choices{{}};
  DeviceId server;
  if (sync_.kind == Kind::kServer) {
    MOTLEY_ASSIGN(server, cluster::find_device(*problem.cluster, sync_.server));
  }
  if (plan.replicas.size() == 1) {
    if (sync_.kind == Kind::kAuto) return Choices();
    return usage_error("search.sync",
                       "--sync: the best plan has one replica, so no gradients are summed between "
                       "replicas; leave it out, or choose another plan (--planner equal, "
                       "--batch-split)");
  }
  const std::vector<DeviceId> used = devices_of(plan);
  if (sync_.kind != Kind::kServer) {
    MOTLEY_ASSIGN(const auto linked, by_links(problem, used));
    Choices choices;
    if (linked || sync_.kind == Kind::kOwners) choices.push_back(owners_of_all(equal_shares(used)));
    if (linked) choices.push_back(owners_of_all(linked->shares));
    if (linked && sync_.kind == Kind::kAuto)
      choices.push_back(owners_of_all({{linked->server, 1.0}}));
    return choices;
  }
  if (std::find(used.begin(), used.end(), server) == used.end())
    return usage_error("search.sync",
                       fmt::format("--sync: the plan does not use {}; a server computes a part of "
                                   "the batch too, so name one of the plan's devices",
                                   sync_.server));
  return Choices{owners_of_all({{server, 1.0}})};
}

Result<void> Synchronised::take_faster(const plan::Problem& problem,
                                       const std::vector<plan::Plan>& plans,
                                       plan::PlanOutcome& outcome) const {
  const Seconds others = outcome.predicted_step;
  for (const plan::Plan& plan : plans) {
    const auto priced = inputs_.evaluator->price(plan);
    ++outcome.considered;
    // Regions that share parameters cannot do all that a split of the batch can.
    if (!priced && priced.error().code.starts_with("synth.")) continue;
    MOTLEY_ASSIGN(const plan::Price price, priced);
    if (price.step >= outcome.predicted_step) continue;
    plan::PlanOutcome with = outcome;
    with.lower_bound = Seconds(0);
    std::vector<std::string> why = {fmt::format(
        "owners sum gradients: all-reduces would make a step {} long", format_seconds(others))};
    MOTLEY_ASSIGN(const bool fits, take_better(problem, plan, price, std::move(why), with));
    if (fits) outcome = std::move(with);
  }
  return {};
}

Result<void> Synchronised::take_as_asked(const plan::Problem& problem,
                                         const std::vector<plan::Plan>& plans,
                                         plan::PlanOutcome& outcome) const {
  const std::string as_chosen = format_seconds(outcome.predicted_step);
  outcome.plan.reset();
  outcome.alternatives.clear();
  if (!plans.front().owners.empty()) outcome.lower_bound = Seconds(0);
  std::vector<std::string> lacking;
  for (const plan::Plan& plan : plans) {
    MOTLEY_ASSIGN(const plan::Price price, inputs_.evaluator->price(plan));
    ++outcome.considered;
    std::vector<std::string> why = {
        fmt::format("{} sum gradients, as asked for; as the planner chose, a step takes {}",
                    who_sums(plan), as_chosen)};
    MOTLEY_ASSIGN(const bool fits, take_better(problem, plan, price, std::move(why), outcome));
    if (!fits) lacking = find_lacking(*problem.cluster, devices_of(plan), price.peaks);
  }
  if (outcome.plan) return {};
  outcome.reason = plan::Reason::kInfeasible;
  outcome.peak.clear();
  outcome.idle = problem.devices;
  outcome.why = std::move(lacking);
  return {};
}

Result<plan::PlanOutcome> Synchronised::plan(const plan::Problem& problem) const {
  MOTLEY_ASSIGN(plan::PlanOutcome outcome, planner_->plan(problem));
  if (!outcome.plan) return outcome;
  MOTLEY_ASSIGN(const Choices choices, find_choices(problem, *outcome.plan));
  std::vector<plan::Plan> plans;
  for (const std::vector<plan::Owners>& owners : choices) {
    plan::Plan plan = *outcome.plan;
    plan.owners = owners;
    if (plan == *outcome.plan && sync_.kind != Kind::kAuto) return outcome;
    plans.push_back(std::move(plan));
  }
  const auto take =
      sync_.kind == Kind::kAuto ? &Synchronised::take_faster : &Synchronised::take_as_asked;
  if (!plans.empty()) MOTLEY_RETURN_IF_ERROR((this->*take)(problem, plans, outcome));
  return outcome;
}

}  // namespace motley::search
