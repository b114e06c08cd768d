#include "motley/elastic/job_standing.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

namespace motley::elastic {
namespace {

constexpr int kSettling = 2;     // steps skipped after a change of machines
constexpr double kPatience = 2;  // starts to wait for a machine

}  // namespace

JobStanding::JobStanding(RentingJob of, Lifetimes learned)
    : job(std::move(of)), lifetimes(std::move(learned)) {
  if (!job.speed)
    job.speed = [all = job.machines](const Machines& set) {
      double sum = 0;
      for (const std::size_t m : set) sum += all[m].speed;
      return sum;
    };
  for (const JobMachine& machine : job.machines) {
    machines.push_back({machine.name});
    if (!machine.is_there) continue;
    come(machines.size() - 1);
    ++target;
  }
  for (const Offer& offer : job.market.offers)
    offers.push_back({name_of(offer), offer.price_per_hour});
  if (job.step && target > 0) measured = {{there(), job.step->value}};
}

void JobStanding::advance(Seconds at) {
  const Seconds passed = std::max(at - now, Seconds(0));
  for (std::size_t m = 0; m < machines.size(); ++m)
    if (machines[m].place != Place::kAbsent) paid += passed.value / 3600 * price_of(m);
  now += passed;
}

void JobStanding::put(std::size_t machine, Place place) {
  MachineState& state = machines[machine];
  state = {std::move(state.name), place, now, {}, state.lives};
}

void JobStanding::come(std::size_t machine) {
  put(machine, Place::kThere);
  ++machines[machine].lives;
  settling = kSettling;
  const Offer* const offer = offer_of(machine);
  if (offer != nullptr && offer->is_spot)
    lifetimes.begin(life_of(machine), offer->kind, offer->zone, now);
}

void JobStanding::lose(std::size_t machine, const policy::LossSeen& seen) {
  if (machines[machine].is_there() && offer_of(machine) != nullptr) {
    if (seen.was_given_back)
      lifetimes.end_given_back(life_of(machine), now);
    else
      lifetimes.end_lost(life_of(machine), now);
  }
  put(machine, Place::kAbsent);
  settling = kSettling;
}

void JobStanding::measure(Seconds took) {
  if (settling > 0) {
    --settling;
    return;
  }
  // A leaving machine may no longer take part.
  const bool leaves = std::any_of(machines.begin(), machines.end(), [](const MachineState& each) {
    return each.is_there() && each.until;
  });
  if (leaves || there().empty() || !(took.value > 0)) return;
  add_step(measured, there(), took);
}

std::optional<std::string> JobStanding::reprice(std::size_t offer, double per_hour, Seconds at) {
  OfferState& known = offers[offer];
  const bool is_there = per_hour >= 0;
  if (known.is_there == is_there && (!is_there || known.price == per_hour)) return std::nullopt;
  advance(at);
  known.is_there = is_there;
  if (!is_there) {
    known.gaps.begin(now);
    return known.name + " is not to be had any more";
  }
  known.gaps.end(now);
  return fmt::format("{} costs {:g} an hour, not {:g}", known.name, per_hour,
                     std::exchange(known.price, per_hour));
}

std::vector<std::string> JobStanding::give_up_waiting(Seconds pause) {
  for (OfferState& offer : offers) {
    if (!offer.again || now < *offer.again) continue;
    offer.again.reset();
    if (offer.is_there) offer.gaps.end(now);
  }
  std::vector<std::string> names;
  for (std::size_t m = 0; m < machines.size(); ++m) {
    if (machines[m].place != Place::kAsked) continue;
    if (now - machines[m].since <= offer_of(m)->start.cold * kPatience) continue;
    put(m, Place::kAbsent);
    OfferState& offer = offers[*job.machines[m].offer];
    offer.gaps.begin(now);
    offer.again = now + pause;
    names.push_back(machines[m].name);
  }
  return names;
}

std::optional<std::size_t> JobStanding::find_machine(const std::string& device) const {
  for (std::size_t m = 0; m < machines.size(); ++m) {
    const std::vector<std::string>& devices = job.machines[m].devices;
    if (std::find(devices.begin(), devices.end(), device) != devices.end()) return m;
  }
  return std::nullopt;
}

const Offer* JobStanding::offer_of(std::size_t machine) const {
  const auto& offer = job.machines[machine].offer;
  return offer ? &job.market.offers[*offer] : nullptr;
}

double JobStanding::price_of(std::size_t machine) const {
  const auto& offer = job.machines[machine].offer;
  return offer ? offers[*offer].price : 0;
}

std::string JobStanding::life_of(std::size_t machine) const {
  return fmt::format("{} life {}", machines[machine].name, machines[machine].lives);
}

Machines JobStanding::there() const {
  Machines set;
  for (std::size_t m = 0; m < machines.size(); ++m)
    if (machines[m].is_there()) set.insert(m);
  return set;
}

std::size_t JobStanding::missing() const {
  const auto staying = static_cast<std::size_t>(
      std::count_if(machines.begin(), machines.end(), std::mem_fn(&MachineState::stays)));
  return target - std::min(target, staying);
}

bool JobStanding::is_offered(std::size_t offer) const {
  if (!offers[offer].is_there || offers[offer].again) return false;
  for (std::size_t m = 0; m < machines.size(); ++m)
    if (const Offer* other = offer_of(m);
        other != nullptr && machines[m].stays() && other->region != job.market.offers[offer].region)
      return false;
  return true;
}

std::vector<std::size_t> JobStanding::free_of(std::size_t offer, std::size_t most) const {
  auto may_have = static_cast<std::size_t>(job.market.offers[offer].most);
  for (std::size_t m = 0; m < machines.size(); ++m)
    if (job.machines[m].offer == offer && machines[m].place != Place::kAbsent && may_have > 0)
      --may_have;
  most = std::min(most, may_have);
  std::vector<std::size_t> free;
  for (std::size_t m = 0; m < machines.size() && free.size() < most; ++m)
    if (job.machines[m].offer == offer && machines[m].place == Place::kAbsent) free.push_back(m);
  return free;
}

std::optional<LeftToDo> JobStanding::left_with(const std::vector<std::size_t>& asked) const {
  std::vector<MachineAhead> ahead;
  std::vector<std::size_t> places;
  for (std::size_t m = 0; m < machines.size(); ++m) {
    const MachineState& state = machines[m];
    const bool is_new = std::find(asked.begin(), asked.end(), m) != asked.end();
    if (state.place == Place::kAbsent && !is_new) continue;
    const Offer* const offer = offer_of(m);
    MachineAhead machine{.price_per_hour = price_of(m)};
    if (!state.is_there() && offer != nullptr)
      machine = replacement(offer->start.cold, price_of(m));
    if (state.place == Place::kAsked)
      machine.availability.from =
          std::max(machine.availability.from - (now - state.since), Seconds(0));
    if (state.until)
      machine.availability.until = std::max(*state.until - now, machine.availability.from);
    ahead.push_back(machine);
    places.push_back(m);
  }
  const auto left =
      estimate_left(ahead, steps_left(), [&](const std::vector<std::size_t>& present) {
        Machines then;
        for (const std::size_t each : present) then.insert(places[each]);
        return speed_with(then);
      });
  if (!left) return std::nullopt;
  return *left;
}

}  // namespace motley::elastic
