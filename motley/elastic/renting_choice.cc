#include "motley/elastic/renting_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "motley/elastic/renting_plan.h"

namespace motley::elastic {
namespace {

/// Starts that a returned machine may cost, if it is wanted again.
constexpr double kStartsLeft = 2;

/// What the choice is about.
struct Choosing {
  double steps = 0;       // remaining
  Seconds time;           // until the deadline
  Machines base;          // all that stay
  double speed = 0;       // theirs, steps/s
  Machines reliable;      // of `base`: own and on demand
  double per_second = 0;  // cost of all that stay
  std::size_t missing = 0;
  Machines on_demand;  // all free ones
  Seconds starts;      // until they train
  bool is_in_time() const { return speed * time.value >= steps; }
};

/// One way to replace what is missing.
struct Option {
  std::size_t offer = 0;
  std::vector<std::size_t> machines;
  LeftToDo left;
  double more = 0;  // steps/s
  double net = 0;   // price per second, less the savings on the others
  Rented rent(const char* why) const { return {{{offer, static_cast<int>(machines.size())}}, why}; }
};

Choosing stand(const JobStanding& standing) {
  Choosing now{.steps = standing.steps_left(), .time = standing.job.deadline - standing.now};
  for (std::size_t m = 0; m < standing.machines.size(); ++m) {
    if (!standing.machines[m].stays()) continue;
    const Offer* const offer = standing.offer_of(m);
    now.base.insert(m);
    if (offer == nullptr || !offer->is_spot) now.reliable.insert(m);
    now.per_second += standing.price_of(m) / 3600;
  }
  now.speed = standing.speed_with(now.base);
  now.missing = standing.missing();
  for (std::size_t offer = 0; offer < standing.offers.size(); ++offer) {
    if (standing.job.market.offers[offer].is_spot || !standing.is_offered(offer)) continue;
    for (const std::size_t m : standing.free_of(offer, standing.machines.size())) {
      now.on_demand.insert(m);
      now.starts = std::max(now.starts, standing.job.market.offers[offer].start.cold);
    }
  }
  return now;
}

/// Tells whether the machines can train after the loss of any one spot machine.
bool outlives_losses(const JobStanding& standing, const Machines& machines) {
  return std::all_of(machines.begin(), machines.end(), [&](std::size_t m) {
    const Offer* const offer = standing.offer_of(m);
    if (offer == nullptr || !offer->is_spot) return true;
    Machines others = machines;
    others.erase(m);
    return standing.speed_with(others) > 0;
  });
}

/// Gives back the machine without which the rest costs least, where that pays; else `otherwise`.
Rented choose_back(const JobStanding& standing, const Choosing& now, std::string otherwise) {
  Rented rented{{}, std::move(otherwise)};
  if (!standing.job.gives_back || standing.job.rule != RentingRule::kMotley ||
      standing.settling > 0)
    return rented;
  double most = 0;
  for (std::size_t m = 0; m < standing.machines.size(); ++m) {
    const Offer* const offer = standing.offer_of(m);
    const MachineState& state = standing.machines[m];
    if (offer == nullptr || !state.is_there() || !state.stays() || state.is_kept) continue;
    Machines others = now.base, reliable = now.reliable, all = now.on_demand;
    others.erase(m);
    reliable.erase(m);
    if (!offer->is_spot) all.insert(m);
    all.insert(reliable.begin(), reliable.end());
    const double price = standing.price_of(m) / 3600;
    const double speed = standing.speed_with(others);
    if (!(speed > 0) || !outlives_losses(standing, others)) continue;
    const double saved =
        now.steps * (now.per_second / now.speed - (now.per_second - price) / speed);
    const Seconds start = std::max(now.starts, offer->start.cold);
    const Seconds slack = now.time - Seconds(now.steps / speed);
    const bool is_safe =
        slack >= start * kStartsLeft &&
        (standing.speed_with(reliable) * now.time.value >= now.steps ||
         now.time - Seconds(now.steps / standing.speed_with(all)) >= start * kStartsLeft);
    if (!is_safe || saved <= std::max(most, kStartsLeft * price * start.value)) continue;
    most = saved;
    rented.back = m;
  }
  if (rented.back) rented.why = fmt::format("the others are in time and cost {:.3g} less", most);
  return rented;
}

/// Tells whether it is nearly the last moment for own and on-demand machines alone to be in time. A
/// job that could never be done that way requests them when it is late as it is.
bool must_go_on_demand(const JobStanding& standing, const Choosing& now, OnDemandSwitch& change) {
  const double reliable = standing.speed_with(now.reliable);
  if (reliable * now.time.value >= now.steps) return false;
  Machines all = now.reliable;
  all.insert(now.on_demand.begin(), now.on_demand.end());
  const double fastest = standing.speed_with(all);
  if (!(fastest > reliable)) return false;
  const Seconds slack = now.time - Seconds(now.steps / fastest);
  const Holding holding = now.missing == 0 ? Holding::kSpot : Holding::kNothing;
  const RentingTerms terms{.change_over = now.starts, .tick = standing.job.tick};
  if (is_safe(terms, slack, holding, holding)) {
    change.was_safe = true;
    return change.is_forced;
  }
  change.is_forced = change.is_forced || change.was_safe || !now.is_in_time();
  return change.is_forced;
}

/// Chooses the fewest on-demand machines that are in time with own ones alone, cheapest first.
Rented choose_on_demand(const JobStanding& standing, const Choosing& now) {
  std::vector<std::pair<double, std::size_t>> offers;
  for (std::size_t offer = 0; offer < standing.offers.size(); ++offer)
    if (!standing.job.market.offers[offer].is_spot && standing.is_offered(offer))
      offers.emplace_back(standing.offers[offer].price, offer);
  std::sort(offers.begin(), offers.end());
  Rented rented{{}, "on demand, so that the deadline holds whatever is taken back"};
  std::vector<std::size_t> asked;
  Machines then = now.reliable;
  bool is_in_time = false;
  for (const auto& [price, offer] : offers) {
    int count = 0;
    for (const std::size_t m : standing.free_of(offer, standing.machines.size())) {
      if (is_in_time) break;
      then.insert(m);
      asked.push_back(m);
      ++count;
      const Seconds starts = standing.job.market.offers[offer].start.cold;
      is_in_time = standing.speed_with(now.reliable) * starts.value +
                       standing.speed_with(then) * (now.time - starts).value >=
                   now.steps;
    }
    if (count > 0) rented.what.emplace_back(offer, count);
  }
  if (!is_in_time) rented.why = "on demand all that can be had, as the deadline is too near";
  const auto left = standing.left_with(asked);
  if (standing.job.budget && left && standing.paid + left->cost > *standing.job.budget)
    return {{}, "on demand it would cost more than the budget"};
  return rented;
}

void price(const JobStanding& standing, const Choosing& now, Option& option) {
  Machines then = now.base;
  then.insert(option.machines.begin(), option.machines.end());
  option.more = standing.speed_with(then) - now.speed;
  option.net =
      static_cast<double>(option.machines.size()) * standing.offers[option.offer].price / 3600;
  if (now.speed > 0) option.net -= now.per_second * option.more / now.speed;
}

/// Lists each offer with as many machines as are missing, within the budget.
std::vector<Option> find_options(const JobStanding& standing, const Choosing& now) {
  std::vector<Option> options;
  for (std::size_t offer = 0; offer < standing.offers.size(); ++offer) {
    if (!standing.is_offered(offer)) continue;
    Option option{.offer = offer, .machines = standing.free_of(offer, now.missing)};
    const auto left = standing.left_with(option.machines);
    if (option.machines.empty() || !left) continue;
    if (standing.job.budget && standing.paid + left->cost > *standing.job.budget) continue;
    option.left = *left;
    price(standing, now, option);
    options.push_back(std::move(option));
  }
  return options;
}

RentingPlan make_plan(const JobStanding& standing, const Option& spot, const Option& on_demand,
                      const RentingPlan::Place& place) {
  const Offer& offer = standing.job.market.offers[spot.offer];
  const Seconds starts =
      std::max(offer.start.cold, standing.job.market.offers[on_demand.offer].start.cold);
  const RentingTerms terms{3600 * spot.net, 3600 * on_demand.net * spot.more / on_demand.more,
                           starts, standing.job.tick};
  AgeHazard hazard = standing.lifetimes.forecast(standing.now).hazard_of(offer.kind, offer.zone);
  if (offer.losses_per_hour) hazard = {{Seconds(0)}, {*offer.losses_per_hour / 3600}};
  for (double& rate : hazard.per_second) rate *= static_cast<double>(spot.machines.size());
  return RentingPlan(terms,
                     {hazard, standing.offers[spot.offer].gaps.returns_per_second(standing.now)},
                     place.work, std::max(place.slack, starts));
}

/// Applies the renting plan of each spot offer, with the cheapest on-demand option.
Rented choose_by_plan(const JobStanding& standing, const Choosing& now,
                      const std::vector<Option>& options, const Option& on_demand) {
  double least = std::numeric_limits<double>::infinity();
  Rented best = on_demand.rent("there are no spot machines");
  for (std::size_t offer = 0; offer < standing.offers.size(); ++offer) {
    if (!standing.job.market.offers[offer].is_spot) continue;
    Option spot{.offer = offer, .machines = standing.free_of(offer, now.missing)};
    if (spot.machines.empty()) continue;
    price(standing, now, spot);
    if (!(spot.more > 0)) continue;
    const auto option = std::find_if(options.begin(), options.end(),
                                     [&](const Option& each) { return each.offer == offer; });
    const Seconds work((now.steps - now.speed * now.time.value) / spot.more);
    const RentingPlan::Place place{
        .work = work, .slack = now.time - work, .is_there = option != options.end()};
    const RentingPlan plan = make_plan(standing, spot, on_demand, place);
    const double cost = plan.cost(place);
    if (cost >= least) continue;
    least = cost;
    const Holding next = plan.best(place);
    best = next == Holding::kSpot ? spot.rent("that is cheapest by expectation")
           : next == Holding::kOnDemand
               ? on_demand.rent("on demand is cheapest by expectation")
               : Rented{{}, "it can wait, which is cheaper by expectation"};
  }
  return best;
}

/// Replaces what is missing when that has the least expected cost, or later.
Rented choose_missing(const JobStanding& standing, const Choosing& now,
                      const OnDemandSwitch& change) {
  std::vector<Option> options = find_options(standing, now);
  std::erase_if(options, [](const Option& each) { return !(each.more > 0); });
  const Option* pays = nullptr;
  const Option* at_once = nullptr;
  const Option* on_demand = nullptr;
  // In time before late. If in time the cheaper, if late the faster.
  const auto is_better = [&](const Option& one, const Option& other) {
    const bool is_in_time = one.left.time <= now.time;
    if (is_in_time != (other.left.time <= now.time)) return is_in_time;
    return is_in_time ? one.left.cost < other.left.cost : one.left.time < other.left.time;
  };
  for (const Option& each : options) {
    if (each.net < 0 && (pays == nullptr || each.left.cost < pays->left.cost)) pays = &each;
    if (at_once == nullptr || is_better(each, *at_once)) at_once = &each;
    if (!standing.job.market.offers[each.offer].is_spot &&
        (on_demand == nullptr || each.left.cost < on_demand->left.cost))
      on_demand = &each;
  }
  if (pays != nullptr) return pays->rent("the others are then paid for less long");
  if (now.is_in_time()) return {{}, "those that are there are in time"};
  if (at_once == nullptr && standing.job.budget)
    return {{}, "nothing that helps is for rent within the budget"};
  if (at_once == nullptr) return {{}, "nothing that helps is for rent"};
  if (on_demand == nullptr || !change.was_safe)
    return at_once->rent("nothing on demand could make up for a wait");
  return choose_by_plan(standing, now, options, *on_demand);
}

/// Applies another tool's rule. Uniform: progress against the line from the start to the deadline.
Rented choose_as_others(const JobStanding& standing, const Choosing& now) {
  const Option* spot = nullptr;
  const Option* on_demand = nullptr;
  const std::vector<Option> options = find_options(standing, now);
  for (const Option& each : options) {
    const Option*& best = standing.job.market.offers[each.offer].is_spot ? spot : on_demand;
    if (best == nullptr || each.left.cost < best->left.cost) best = &each;
  }
  const bool is_behind = static_cast<double>(standing.done) * standing.job.deadline.value <
                         static_cast<double>(standing.job.steps) * standing.now.value;
  const bool wants_any = standing.job.rule == RentingRule::kUniform && is_behind;
  if (standing.job.rule == RentingRule::kOnDemand)
    return on_demand ? on_demand->rent("on demand") : Rented{{}, "nothing is for rent on demand"};
  if (spot != nullptr) return spot->rent("spot machines are there");
  if (wants_any && on_demand != nullptr) return on_demand->rent("progress is behind the line");
  return {{}, "there are no spot machines"};
}

}  // namespace

Rented choose_rented(const JobStanding& standing, OnDemandSwitch& change) {
  Choosing now = stand(standing);
  if (standing.job.rule == RentingRule::kNone) return {{}, "nobody is asked for"};
  if (must_go_on_demand(standing, now, change)) return choose_on_demand(standing, now);
  if (!now.is_in_time()) now.missing = std::max<std::size_t>(now.missing, 1);
  if (now.missing == 0)
    return choose_back(standing, now, "there are as many machines as it began with");
  if (standing.job.rule != RentingRule::kMotley) return choose_as_others(standing, now);
  Rented rented = choose_missing(standing, now, change);
  return rented.what.empty() ? choose_back(standing, now, std::move(rented.why)) : rented;
}

std::vector<policy::Alternative> list_alternatives(const JobStanding& standing) {
  std::vector<policy::Alternative> all;
  const auto add = [&](std::string what, const std::vector<std::size_t>& asked) {
    if (const auto left = standing.left_with(asked))
      all.push_back({std::move(what), left->time, left->cost});
  };
  add("as it is", {});
  const std::size_t missing = std::max<std::size_t>(standing.missing(), 1);
  for (std::size_t offer = 0; offer < standing.offers.size(); ++offer) {
    const auto free = standing.free_of(offer, missing);
    if (!free.empty() && standing.is_offered(offer))
      add(fmt::format("{} {}", free.size(), standing.offers[offer].name), free);
  }
  return all;
}

}  // namespace motley::elastic
