// The alternatives of a job that rents, their time and cost, and the choice.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "motley/elastic/job_renting.h"

namespace motley::elastic {

struct JobRenting::Choosing {
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

/// Starts that a returned machine may cost, if it is wanted again.
constexpr double kStartsLeft = 2;

/// One way to replace what is missing.
struct JobRenting::Option {
  std::size_t offer = 0;
  std::vector<std::size_t> machines;
  LeftToDo left;
  double more = 0;  // steps/s
  double net = 0;   // price per second, less the savings on the others
  Rented rent(const char* why) const { return {{{offer, static_cast<int>(machines.size())}}, why}; }
};

/// Predicts speed before any measurement.
double JobRenting::believed(const Machines& machines) const {
  if (job_.speed) return job_.speed(machines);
  double sum = 0;
  for (const std::size_t m : machines) sum += job_.machines[m].speed;
  return sum;
}

Machines JobRenting::there() const {
  Machines machines;
  for (std::size_t m = 0; m < machines_.size(); ++m)
    if (machines_[m].place == Place::kThere) machines.insert(m);
  return machines;
}

/// Returns steps per second; of unmeasured sets, scaled as at the nearest measured set.
double JobRenting::speed_with(const Machines& machines) const {
  if (const auto known = measured_.find(machines); known != measured_.end())
    return 1 / known->second;
  const double speed = believed(machines);
  if (!(speed > 0) || measured_.empty()) return 0;
  const auto far = [&](const Machines& other) {
    return std::abs(std::log(believed(other) / speed));
  };
  const auto nearest =
      std::min_element(measured_.begin(), measured_.end(),
                       [&](const auto& a, const auto& b) { return far(a.first) < far(b.first); });
  const double of_nearest = believed(nearest->first);
  return of_nearest > 0 ? speed / of_nearest / nearest->second : 0;
}

/// Tells whether a machine is present or coming, and is not leaving.
bool JobRenting::stays(std::size_t machine) const {
  return machines_[machine].place != Place::kAbsent && !machines_[machine].until;
}

/// Tells whether an offer is available, in the region of the present machines.
bool JobRenting::is_offered(std::size_t offer) const {
  if (!offers_[offer].is_there || offers_[offer].again) return false;
  for (std::size_t m = 0; m < machines_.size(); ++m)
    if (const Offer* other = offer_of(m);
        other != nullptr && stays(m) && other->region != job_.market.offers[offer].region)
      return false;
  return true;
}

std::vector<std::size_t> JobRenting::free_of(std::size_t offer, std::size_t most) const {
  auto may_have = static_cast<std::size_t>(job_.market.offers[offer].most);
  for (std::size_t m = 0; m < machines_.size(); ++m)
    if (job_.machines[m].offer == offer && machines_[m].place != Place::kAbsent && may_have > 0)
      --may_have;
  most = std::min(most, may_have);
  std::vector<std::size_t> free;
  for (std::size_t m = 0; m < machines_.size() && free.size() < most; ++m)
    if (job_.machines[m].offer == offer && machines_[m].place == Place::kAbsent) free.push_back(m);
  return free;
}

/// Predicts time and cost if these are requested too and no other is lost.
std::optional<LeftToDo> JobRenting::left_with(const std::vector<std::size_t>& asked) const {
  std::vector<MachineAhead> ahead;
  std::vector<std::size_t> places;
  for (std::size_t m = 0; m < machines_.size(); ++m) {
    const MachineState& machine_state = machines_[m];
    const bool is_new = std::find(asked.begin(), asked.end(), m) != asked.end();
    if (machine_state.place == Place::kAbsent && !is_new) continue;
    const Offer* const offer = offer_of(m);
    const double price = offer == nullptr ? 0 : offers_[*job_.machines[m].offer].price;
    MachineAhead machine{.price_per_hour = price};
    if (machine_state.place != Place::kThere && offer != nullptr)
      machine = replacement(offer->start.cold, price);
    if (machine_state.place == Place::kAsked)
      machine.availability.from =
          std::max(machine.availability.from - (now_ - machine_state.since), Seconds(0));
    if (machine_state.until)
      machine.availability.until = std::max(*machine_state.until - now_, machine.availability.from);
    ahead.push_back(machine);
    places.push_back(m);
  }
  const auto left = estimate_left(ahead, static_cast<double>(job_.steps - done_),
                                  [&](const std::vector<std::size_t>& present) {
                                    Machines then;
                                    for (const std::size_t each : present)
                                      then.insert(places[each]);
                                    return speed_with(then);
                                  });
  if (!left) return std::nullopt;
  return *left;
}

namespace {

std::string name_of(const Market& market, std::size_t offer, std::size_t count) {
  return fmt::format("{} {}", count, name_of(market.offers[offer]));
}

}  // namespace

/// Lists: as it is, and with as many of each offer as are missing (one where none is).
std::vector<policy::Alternative> JobRenting::alternatives() const {
  std::vector<policy::Alternative> all;
  const auto add = [&](std::string what, const std::vector<std::size_t>& asked) {
    if (const auto left = left_with(asked))
      all.push_back({std::move(what), left->time, left->cost});
  };
  add("as it is", {});
  std::size_t there = 0;
  for (std::size_t m = 0; m < machines_.size(); ++m) there += stays(m) ? 1 : 0;
  const std::size_t missing = target_ > there ? target_ - there : 1;
  for (std::size_t offer = 0; offer < offers_.size(); ++offer) {
    const auto free = free_of(offer, missing);
    if (!free.empty() && is_offered(offer)) add(name_of(job_.market, offer, free.size()), free);
  }
  return all;
}

JobRenting::Choosing JobRenting::stand() const {
  Choosing now{.steps = static_cast<double>(job_.steps - done_), .time = job_.deadline - now_};
  std::size_t there = 0;
  for (std::size_t m = 0; m < machines_.size(); ++m) {
    if (!stays(m)) continue;
    const Offer* const offer = offer_of(m);
    ++there;
    now.base.insert(m);
    if (offer == nullptr || !offer->is_spot) now.reliable.insert(m);
    if (offer != nullptr) now.per_second += offers_[*job_.machines[m].offer].price / 3600;
  }
  now.speed = speed_with(now.base);
  now.missing = target_ > there ? target_ - there : 0;
  for (std::size_t offer = 0; offer < offers_.size(); ++offer) {
    if (job_.market.offers[offer].is_spot || !is_offered(offer)) continue;
    for (const std::size_t m : free_of(offer, machines_.size())) {
      now.on_demand.insert(m);
      now.starts = std::max(now.starts, job_.market.offers[offer].start.cold);
    }
  }
  return now;
}

JobRenting::Rented JobRenting::choose() {
  Choosing now = stand();
  if (job_.rule == RentingRule::kNone) return {{}, "nobody is asked for"};
  if (must_go_on_demand(now)) return choose_on_demand(now);
  if (!now.is_in_time()) now.missing = std::max<std::size_t>(now.missing, 1);
  if (now.missing == 0) return choose_back(now, "there are as many machines as it began with");
  if (job_.rule != RentingRule::kMotley) return choose_as_others(now);
  Rented rented = choose_missing(now);
  return rented.what.empty() ? choose_back(now, std::move(rented.why)) : rented;
}

/// Tells whether the machines can train after the loss of any one spot machine.
bool JobRenting::outlives_losses(const Machines& machines) const {
  return std::all_of(machines.begin(), machines.end(), [&](std::size_t m) {
    const Offer* const offer = offer_of(m);
    if (offer == nullptr || !offer->is_spot) return true;
    Machines others = machines;
    others.erase(m);
    return speed_with(others) > 0;
  });
}

/// Gives back the machine without which the rest costs least, where that pays; else `otherwise`.
JobRenting::Rented JobRenting::choose_back(const Choosing& now, std::string otherwise) const {
  Rented rented{{}, std::move(otherwise)};
  if (!job_.gives_back || job_.rule != RentingRule::kMotley || settling_ > 0) return rented;
  double most = 0;
  for (std::size_t m = 0; m < machines_.size(); ++m) {
    const Offer* const offer = offer_of(m);
    if (offer == nullptr || machines_[m].place != Place::kThere || !stays(m)) continue;
    if (machines_[m].is_kept) continue;
    Machines others = now.base, reliable = now.reliable, all = now.on_demand;
    others.erase(m);
    reliable.erase(m);
    if (!offer->is_spot) all.insert(m);
    all.insert(reliable.begin(), reliable.end());
    const double price = offers_[*job_.machines[m].offer].price / 3600;
    const double speed = speed_with(others);
    if (!(speed > 0) || !outlives_losses(others)) continue;
    const double saved =
        now.steps * (now.per_second / now.speed - (now.per_second - price) / speed);
    const Seconds start = std::max(now.starts, offer->start.cold);
    const Seconds slack = now.time - Seconds(now.steps / speed);
    const bool is_safe = slack >= start * kStartsLeft &&
                         (speed_with(reliable) * now.time.value >= now.steps ||
                          now.time - Seconds(now.steps / speed_with(all)) >= start * kStartsLeft);
    if (!is_safe || saved <= std::max(most, kStartsLeft * price * start.value)) continue;
    most = saved;
    rented.back = m;
  }
  if (rented.back) rented.why = fmt::format("the others are in time and cost {:.3g} less", most);
  return rented;
}

/// Tells whether it is nearly the last moment for own and on-demand machines alone to be in time. A
/// job that could never be done that way requests them when it is late as it is.
bool JobRenting::must_go_on_demand(const Choosing& now) {
  if (speed_with(now.reliable) * now.time.value >= now.steps) return false;
  if (now.on_demand.empty()) return false;
  Machines all = now.reliable;
  all.insert(now.on_demand.begin(), now.on_demand.end());
  const double fastest = speed_with(all);
  if (!(fastest > 0)) return false;
  const Seconds slack = now.time - Seconds(now.steps / fastest);
  const Holding holding = now.missing == 0 ? Holding::kSpot : Holding::kNothing;
  const RentingTerms terms{.change_over = now.starts, .tick = job_.tick};
  if (is_safe(terms, slack, holding, holding)) {
    was_safe_ = true;
    return is_forced_;
  }
  is_forced_ = is_forced_ || was_safe_ || !now.is_in_time();
  return is_forced_;
}

/// Chooses the fewest on-demand machines that are in time with own ones alone, cheapest first.
JobRenting::Rented JobRenting::choose_on_demand(const Choosing& now) const {
  std::vector<std::pair<double, std::size_t>> offers;
  for (std::size_t offer = 0; offer < offers_.size(); ++offer)
    if (!job_.market.offers[offer].is_spot && is_offered(offer))
      offers.emplace_back(offers_[offer].price, offer);
  std::sort(offers.begin(), offers.end());
  Rented rented{{}, "on demand, so that the deadline holds whatever is taken back"};
  std::vector<std::size_t> asked;
  Machines then = now.reliable;
  bool is_in_time = false;
  for (const auto& [price, offer] : offers) {
    int count = 0;
    for (const std::size_t m : free_of(offer, machines_.size())) {
      if (is_in_time) break;
      then.insert(m);
      asked.push_back(m);
      ++count;
      const Seconds starts = job_.market.offers[offer].start.cold;
      is_in_time =
          speed_with(now.reliable) * starts.value + speed_with(then) * (now.time - starts).value >=
          now.steps;
    }
    if (count > 0) rented.what.emplace_back(offer, count);
  }
  if (!is_in_time) rented.why = "on demand all that can be had, as the deadline is too near";
  const auto left = left_with(asked);
  if (job_.budget && left && paid_ + left->cost > *job_.budget)
    return {{}, "on demand it would cost more than the budget"};
  return rented;
}

/// Lists each offer with as many machines as are missing, within the budget.
std::vector<JobRenting::Option> JobRenting::find_options(const Choosing& now) const {
  std::vector<Option> options;
  for (std::size_t offer = 0; offer < offers_.size(); ++offer) {
    if (!is_offered(offer)) continue;
    Option option{.offer = offer, .machines = free_of(offer, now.missing)};
    const auto left = left_with(option.machines);
    if (option.machines.empty() || !left) continue;
    if (job_.budget && paid_ + left->cost > *job_.budget) continue;
    option.left = *left;
    price(now, option);
    options.push_back(std::move(option));
  }
  return options;
}

void JobRenting::price(const Choosing& now, Option& option) const {
  Machines then = now.base;
  then.insert(option.machines.begin(), option.machines.end());
  option.more = speed_with(then) - now.speed;
  option.net = static_cast<double>(option.machines.size()) * offers_[option.offer].price / 3600;
  if (now.speed > 0) option.net -= now.per_second * option.more / now.speed;
}

/// Replaces what is missing when that has the least expected cost, or later.
JobRenting::Rented JobRenting::choose_missing(const Choosing& now) const {
  const std::vector<Option> options = find_options(now);
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
    if (!job_.market.offers[each.offer].is_spot &&
        (on_demand == nullptr || each.left.cost < on_demand->left.cost))
      on_demand = &each;
  }
  if (pays != nullptr) return pays->rent("the others are then paid for less long");
  if (now.is_in_time()) return {{}, "those that are there are in time"};
  if (at_once == nullptr && job_.budget)
    return {{}, "nothing that helps is for rent within the budget"};
  if (at_once == nullptr) return {{}, "nothing that helps is for rent"};
  if (on_demand == nullptr || !was_safe_)
    return at_once->rent("nothing on demand could make up for a wait");
  return choose_by_plan(now, options, *on_demand);
}

/// Applies another tool's rule. Uniform: progress against the line from the start to the deadline.
JobRenting::Rented JobRenting::choose_as_others(const Choosing& now) const {
  const Option* spot = nullptr;
  const Option* on_demand = nullptr;
  const std::vector<Option> options = find_options(now);
  for (const Option& each : options) {
    const Option*& best = job_.market.offers[each.offer].is_spot ? spot : on_demand;
    if (best == nullptr || each.left.cost < best->left.cost) best = &each;
  }
  const bool is_behind = static_cast<double>(done_) * job_.deadline.value <
                         static_cast<double>(job_.steps) * now_.value;
  const bool wants_any = job_.rule == RentingRule::kUniform && is_behind;
  if (job_.rule == RentingRule::kOnDemand)
    return on_demand ? on_demand->rent("on demand") : Rented{{}, "nothing is for rent on demand"};
  if (spot != nullptr) return spot->rent("spot machines are there");
  if (wants_any && on_demand != nullptr) return on_demand->rent("progress is behind the line");
  return {{}, "there are no spot machines"};
}

/// Applies the renting plan of each spot offer, with the cheapest on-demand option.
JobRenting::Rented JobRenting::choose_by_plan(const Choosing& now,
                                              const std::vector<Option>& options,
                                              const Option& on_demand) const {
  double least = std::numeric_limits<double>::infinity();
  Rented best = on_demand.rent("there are no spot machines");
  for (std::size_t offer = 0; offer < offers_.size(); ++offer) {
    if (!job_.market.offers[offer].is_spot) continue;
    Option spot{.offer = offer, .machines = free_of(offer, now.missing)};
    if (spot.machines.empty()) continue;
    price(now, spot);
    const auto option = std::find_if(options.begin(), options.end(),
                                     [&](const Option& each) { return each.offer == offer; });
    const Seconds work((now.steps - now.speed * now.time.value) / spot.more);
    const RentingPlan::Place place{
        .work = work, .slack = now.time - work, .is_there = option != options.end()};
    const RentingPlan plan = make_plan(spot, on_demand, place);
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

RentingPlan JobRenting::make_plan(const Option& spot, const Option& on_demand,
                                  const RentingPlan::Place& place) const {
  const Offer& offer = job_.market.offers[spot.offer];
  const Seconds starts = std::max(offer.start.cold, job_.market.offers[on_demand.offer].start.cold);
  const RentingTerms terms{3600 * spot.net, 3600 * on_demand.net * spot.more / on_demand.more,
                           starts, job_.tick};
  AgeHazard hazard = lifetimes_.forecast(now_).hazard_of(offer.kind, offer.zone);
  if (offer.losses_per_hour) hazard = {{Seconds(0)}, {*offer.losses_per_hour / 3600}};
  for (double& rate : hazard.per_second) rate *= static_cast<double>(spot.machines.size());
  return RentingPlan(terms, {hazard, offers_[spot.offer].gaps.returns_per_second(now_)}, place.work,
                     std::max(place.slack, starts));
}

}  // namespace motley::elastic
