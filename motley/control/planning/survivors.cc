#include "motley/control/planning/survivors.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "motley/base/deadline.h"
#include "motley/base/text.h"
#include "motley/control/planning/mirroring.h"
#include "motley/control/planning/prediction.h"
#include "motley/cost/device_keys.h"
#include "motley/plan/shares.h"
#include "motley/search/portfolio.h"
#include "motley/search/split/noted_prices.h"
#include "motley/search/split/split_planner.h"
#include "motley/search/spmd/spmd_planner.h"

namespace motley::control {
namespace {

/// Can the question have other answers than the outcome's plan?
bool has_choice(const PlanChoices& choices) {
  constexpr std::string_view kSearching[] = {"auto", "split", "spmd", "stages"};
  return choices.manual.empty() && choices.stages.empty() &&
         std::find(std::begin(kSearching), std::end(kSearching), choices.planner) !=
             std::end(kSearching);
}

using Noted = search::NotedPrices::Noted;

class Finals {
 public:
  Finals(const Inputs& inputs, const PlanChoices& choices, const Priced& priced)
      : inputs_(inputs),
        choices_(choices),
        priced_(priced),
        deadline_(Deadline::after(choices.time_limit)) {}

  struct Finalist {
    plan::Plan plan;
    plan::Price price;  ///< without mirrors, and without peaks, if a time is unknown
    bool is_known() const { return !price.peaks.empty(); }
  };

  /// Returns the best of a plan and others, which are sorted by their steps without mirrors.
  Result<std::optional<Finalist>> best_of(const plan::PlanOutcome& first,
                                          const std::vector<Noted>& others) {
    MOTLEY_ASSIGN(std::optional<Finalist> best, try_plan(*first.plan, first.predicted_step));
    if (!best) why_not_ = refused_;
    std::map<search::Family, int> tried{{search::family_of(*first.plan), 1}};
    for (const auto& [plan, price] : others) {
      if (best && (price.step >= best->price.step || deadline_.has_passed())) break;
      if (plan == *first.plan || !is_asked_for(plan) || !fits(plan, price) ||
          ++tried[search::family_of(plan)] > kFinalists)
        continue;
      MOTLEY_ASSIGN(std::optional<Finalist> found, try_plan(plan, price.step));
      if (found && (!best || found->price.step < best->price.step)) best = std::move(found);
    }
    return best;
  }

  /// None: the plan does not survive the losses, or lacks memory.
  Result<std::optional<Finalist>> try_plan(const plan::Plan& plan, Seconds without) {
    const auto refuse = [&](std::string why) {
      refused_ = std::move(why);
      return std::optional<Finalist>();
    };
    const std::size_t devices = plan::members(plan).size();
    if (static_cast<int>(devices) <= inputs_.survive)
      return refuse(fmt::format("is on {} device{}", devices, devices == 1 ? "" : "s"));
    MOTLEY_ASSIGN(const Planned planned, lower_plan(inputs_, plan));
    if (!outlives_losses(*planned.program, inputs_.survive))
      return refuse("has not the memory for the mirrors");
    Finalist found{plan, {without, {}, {}}};
    auto price = price_to_run(inputs_, priced_, planned);
    if (price) {
      found.price = *std::move(price);
    } else if (!price.error().code.starts_with("cost.")) {
      return tl::make_unexpected(price.error());
    }
    if (!fits(plan, found.price) || !check_memory(inputs_, planned))
      return refuse("has not the memory for the mirrors and what comes for them");
    return found;
  }

  /// Why the first plan was refused; "": it may be taken.
  const std::string& why_not() const { return why_not_; }

 private:
  /// Does it have the whole batch and the requested number of micro-batches?
  bool is_asked_for(const plan::Plan& plan) const {
    if (plan.global_batch != inputs_.global_batch) return false;
    return choices_.micro_batches <= 1 ||
           std::all_of(plan.replicas.begin(), plan.replicas.end(), [&](const auto& replica) {
             return replica.micro_batches == choices_.micro_batches;
           });
  }

  bool fits(const plan::Plan& plan, const plan::Price& price) const {
    const std::vector<plan::Member> members = plan::members(plan);
    for (std::size_t rank = 0; rank < price.peaks.size(); ++rank) {
      const auto room = inputs_.cluster.device(members[rank].device).room();
      if (room && price.peaks[rank] > *room) return false;
    }
    return true;
  }

  const Inputs& inputs_;
  const PlanChoices& choices_;
  const Priced& priced_;
  const Deadline deadline_;
  std::string refused_;
  std::string why_not_;
};

/// Replaces the outcome's plan. An identical plan keeps its explanation; the step without mirrors
/// is always given.
Result<void> take(const Inputs& inputs, Finals::Finalist found, const std::string& why_not,
                  const plan::Problem& problem, plan::PlanOutcome& outcome) {
  const std::string with = fmt::format(
      "any {} of its devices may be lost{}", inputs.survive,
      found.is_known() ? "; with what that takes a step is " + format_seconds(found.price.step)
                       : "; what that takes is not known");
  const std::string before = format_seconds(outcome.predicted_step);
  std::vector<std::string> said;
  if (*outcome.plan == found.plan) {
    said.push_back(with + ", without " + before);
  } else {
    said.push_back(fmt::format("{}: {}", describe_plan(found.plan, inputs.cluster), with));
    said.push_back(fmt::format("the fastest without, {} of {}, {}",
                               describe_plan(*outcome.plan, inputs.cluster), before,
                               why_not.empty() ? "takes longer then" : why_not));
    outcome.why.clear();
    outcome.stage_names.clear();
    outcome.runner_ups.clear();
  }
  const bool was_ended = outcome.reason == plan::Reason::kLimit;
  outcome.plan = std::move(found.plan);
  outcome.predicted_step = found.price.step;
  outcome.rounding = found.price.rounding;
  std::vector<DeviceId> used;
  outcome.peak.clear();
  for (const plan::Member& member : plan::members(*outcome.plan)) {
    if (found.is_known()) outcome.peak.emplace_back(member.device, found.price.peaks[used.size()]);
    used.push_back(member.device);
  }
  outcome.idle = plan::idle_devices(problem, used);
  outcome.why.insert(outcome.why.begin(), said.begin(), said.end());
  return search::set_bound(outcome.lower_bound, was_ended, outcome);
}

Result<void> price_baseline(const Inputs& inputs, const Priced& priced,
                            const plan::Problem& problem, plan::PlanOutcome& outcome) {
  if (!outcome.equal_split.fits) return {};
  MOTLEY_ASSIGN(const Planned planned,
                lower_plan(inputs, search::make_split_plan(problem, search::equal_split(problem))));
  if (const auto price = price_to_run(inputs, priced, planned))
    outcome.equal_split.step = price->step;
  return {};
}

Result<void> keep_surviving(Finals& finals, plan::PlanOutcome& outcome) {
  std::vector<plan::Alternative> all = std::exchange(outcome.alternatives, {});
  for (plan::Alternative& each : all) {
    if (each.plan == *outcome.plan) continue;
    MOTLEY_ASSIGN(const auto found, finals.try_plan(each.plan, each.step));
    if (!found) continue;
    each.step = found->price.step;
    outcome.alternatives.push_back(std::move(each));
  }
  std::stable_sort(outcome.alternatives.begin(), outcome.alternatives.end(),
                   [](const auto& a, const auto& b) { return a.step < b.step; });
  return {};
}

/// Prices proportional splits over all devices and over as few as suffice, for the final choice.
Result<void> look_at_splits(const Inputs& inputs, PlanChoices choices, const SearchBy& search,
                            const search::PlannerInputs& known) {
  choices.planner = "proportional";
  MOTLEY_ASSIGN(const plan::PlanOutcome all, search(known, choices, 0));
  if (!all.plan) return {};
  std::vector<plan::Member> members = plan::members(*all.plan);
  const auto enough = static_cast<std::size_t>(inputs.survive) + 1;
  if (members.size() <= enough) return {};
  std::stable_sort(members.begin(), members.end(),
                   [](const auto& a, const auto& b) { return a.samples > b.samples; });
  members.resize(enough);
  std::sort(members.begin(), members.end(),
            [](const auto& a, const auto& b) { return a.device < b.device; });
  std::vector<DeviceId> devices;
  std::vector<double> shares;
  for (const plan::Member& member : members) {
    devices.push_back(member.device);
    shares.push_back(static_cast<double>(member.samples));
  }
  const std::int64_t times = all.plan->replicas.front().micro_batches;
  std::vector<std::int64_t> samples = plan::round_shares(shares, all.plan->global_batch / times);
  for (std::int64_t& each : samples) each *= times;
  plan::Plan fewest = plan::split_instead(*all.plan, devices, samples);
  for (plan::Replica& replica : fewest.replicas) replica.micro_batches = times;
  const auto price = known.evaluator->price(fewest);
  return price || price.error().code.starts_with("cost.") ? Result<void>()
                                                          : tl::make_unexpected(price.error());
}

}  // namespace

bool must_survive(const Inputs& inputs) {
  return inputs.survive > 0 && inputs.devices.size() > static_cast<std::size_t>(inputs.survive);
}

Result<plan::Price> price_to_run(const Inputs& inputs, const Priced& priced,
                                 const Planned& planned) {
  MOTLEY_ASSIGN(const PricedPlan found, price_planned(inputs, planned, *priced.costs, 1));
  plan::Price price{found.price.step, {}, found.price.kinds.rounding()};
  const std::vector<plan::Member> members = plan::members(planned.plan);
  for (std::size_t rank = 0; rank < members.size(); ++rank)
    price.peaks.push_back(cost::with_framework(inputs.cluster.device(members[rank].device),
                                               found.price.kinds.devices[rank].memory.total));
  return price;
}

Result<plan::PlanOutcome> find_survivor(const Inputs& inputs, const PlanChoices& choices,
                                        const Priced& priced, const SearchBy& search) {
  search::PlannerInputs known = priced.evaluator->inputs();
  const search::NotedPrices noted(*known.evaluator);
  known.evaluator = &noted;
  Finals finals(inputs, choices, priced);
  MOTLEY_ASSIGN(plan::PlanOutcome outcome, search(known, choices, 0));
  if (!outcome.plan) return outcome;
  const bool is_on_few =
      plan::members(*outcome.plan).size() <= static_cast<std::size_t>(inputs.survive);
  if (has_choice(choices) && is_on_few)
    MOTLEY_RETURN_IF_ERROR(look_at_splits(inputs, choices, search, known));
  if (choices.planner == "auto" || choices.planner == "spmd") {
    PlanChoices sharded = choices;
    sharded.planner = "spmd";
    if (has_choice(choices)) MOTLEY_RETURN_IF_ERROR(search(known, sharded, inputs.survive));
  }
  const bool is_own = !choices.manual.empty() || !choices.stages.empty();
  MOTLEY_ASSIGN(auto best, finals.best_of(outcome, has_choice(choices) ? noted.noted()
                                                                       : std::vector<Noted>()));
  for (const char* planner : {"split", "proportional"}) {
    if (best || is_own) break;
    PlanChoices other = choices;
    other.planner = planner;
    MOTLEY_ASSIGN(const plan::PlanOutcome split, search(known, other, 0));
    if (!split.plan) continue;
    MOTLEY_ASSIGN(best, finals.try_plan(*split.plan, split.predicted_step));
  }
  const plan::Problem problem = make_problem(inputs, choices);
  MOTLEY_RETURN_IF_ERROR(price_baseline(inputs, priced, problem, outcome));
  if (best) {
    MOTLEY_RETURN_IF_ERROR(take(inputs, *std::move(best), finals.why_not(), problem, outcome));
    MOTLEY_RETURN_IF_ERROR(keep_surviving(finals, outcome));
    return outcome;
  }
  outcome.alternatives.clear();
  outcome.why.insert(
      outcome.why.begin(),
      fmt::format("no plan was found that outlives the loss of any {} devices: this one {}",
                  inputs.survive, finals.why_not()));
  MOTLEY_ASSIGN(const Planned planned, lower_plan(inputs, *outcome.plan));
  if (const auto price = price_to_run(inputs, priced, planned)) {
    outcome.predicted_step = price->step;
    outcome.rounding = price->rounding;
  }
  return outcome;
}

}  // namespace motley::control
