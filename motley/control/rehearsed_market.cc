#include "motley/control/rehearsed_market.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "motley/base/random.h"
#include "motley/simulate/drawn_times.h"

namespace motley::control {
namespace {

// What is drawn.
constexpr std::uint32_t kFactor = 1, kLife = 2;

/// When it was seen, and of which device; "": of none.
std::pair<Seconds, std::string> place_of(const policy::Observation& seen) {
  if (const auto* loss = std::get_if<policy::LossSeen>(&seen)) return {loss->at, loss->device};
  if (const auto* notice = std::get_if<policy::NoticeSeen>(&seen))
    return {notice->at, notice->device};
  if (const auto* arrival = std::get_if<policy::ArrivalSeen>(&seen))
    return {arrival->at, arrival->device};
  if (const auto* step = std::get_if<policy::StepSeen>(&seen)) return {step->at, ""};
  return {};
}

}  // namespace

RehearsedMarket::RehearsedMarket(RentRehearsal rent, std::int64_t steps, Seconds step,
                                 const simulate::Conditions& conditions)
    : policy_(make_renting(rent.question, std::move(rent.machines), rent.choices, steps, step)),
      seed_(conditions.seed) {
  const elastic::RentingJob& job = policy_.job();
  const elastic::LifetimeForecast forecast = policy_.lifetimes().forecast(Seconds(0));
  for (std::size_t o = 0; o < job.market.offers.size(); ++o) {
    const elastic::Offer& offer = job.market.offers[o];
    std::uint32_t first = 0;  // of those that share a factor
    while (job.market.offers[first].kind != offer.kind ||
           job.market.offers[first].zone != offer.zone)
      ++first;
    risks_.push_back(elastic::risk_of(offer, forecast));
    factors_.push_back(risks_[o].factor_at(draw(first, 0, kFactor)));
  }
  away_.resize(job.machines.size());
  lives_.resize(job.machines.size());
  std::set<std::string> rented;
  for (std::size_t m = 0; m < job.machines.size(); ++m) {
    const elastic::JobMachine& machine = job.machines[m];
    if (!machine.offer) continue;
    for (const simulate::Absence& absence : conditions.absences)
      if (std::find(machine.devices.begin(), machine.devices.end(), absence.device) !=
          machine.devices.end())
        away_[m].emplace_back(absence.from, absence.until);
    std::sort(away_[m].begin(), away_[m].end());
    rented.insert(machine.devices.begin(), machine.devices.end());
    if (machine.is_there) begin_life(m, Seconds(0));
  }
  for (const simulate::Absence& absence : conditions.absences)
    if (!rented.contains(absence.device)) others_.push_back(absence);
}

std::set<std::string> absent_devices(const std::vector<elastic::JobMachine>& machines) {
  std::set<std::string> devices;
  for (const elastic::JobMachine& machine : machines)
    if (!machine.is_there) devices.insert(machine.devices.begin(), machine.devices.end());
  return devices;
}

std::vector<policy::Choice> RehearsedMarket::observe(const policy::Observation& seen) {
  const auto [at, device] = place_of(seen);
  if (!device.empty()) {
    const auto& machines = policy_.job().machines;
    const auto machine = std::find_if(machines.begin(), machines.end(), [&](const auto& each) {
      return each.devices.front() == device;
    });
    if (machine == machines.end()) return {};
    if (machine->offer) note(seen, static_cast<std::size_t>(machine - machines.begin()));
  }
  std::vector<policy::Choice> choices = policy_.observe(seen);
  for (const policy::Choice& choice : choices)
    if (const auto* rent = std::get_if<policy::Rent>(&choice.action)) order(*rent, at);
  return choices;
}

void RehearsedMarket::note(const policy::Observation& seen, std::size_t machine) {
  if (const auto* loss = std::get_if<policy::LossSeen>(&seen))
    ++(loss->was_given_back ? rent_.returned : rent_.lost);
  const auto* arrival = std::get_if<policy::ArrivalSeen>(&seen);
  if (arrival == nullptr || policy_.is_there(machine)) return;
  ++rent_.came;
  begin_life(machine, arrival->at);
}

void RehearsedMarket::order(const policy::Rent& rent, Seconds at) {
  for (const elastic::JobMachine* machine : policy_.asked_for(rent)) {
    if (rent.count < 0) {
      returns_.push_back(*machine);
      continue;
    }
    ++rent_.asked;
    const auto m = static_cast<std::size_t>(machine - policy_.job().machines.data());
    const Seconds comes = at + policy_.job().market.offers[*machine->offer].start.cold;
    const bool is_away = std::any_of(away_[m].begin(), away_[m].end(), [&](const auto& span) {
      return span.first <= comes && comes < span.second;
    });
    if (!is_away) happen(m, comes, Presence::What::kArrival);
  }
}

void RehearsedMarket::begin_life(std::size_t machine, Seconds at) {
  const std::size_t offer = *policy_.job().machines[machine].offer;
  Seconds lost = at + risks_[offer].life(factors_[offer], draw(static_cast<std::uint32_t>(machine),
                                                               lives_[machine]++, kLife));
  for (const auto& [from, until] : away_[machine])
    if (from >= at) lost = std::min(lost, from);
  if (!std::isfinite(lost.value)) return;
  const Seconds notice = policy_.job().market.offers[offer].notice;
  if (notice.value > 0) happen(machine, std::max(at, lost - notice), Presence::What::kNotice);
  happen(machine, lost, Presence::What::kLoss);
}

void RehearsedMarket::happen(std::size_t machine, Seconds at, Presence::What what) {
  for (const std::string& device : policy_.job().machines[machine].devices)
    events_.push_back({simulate::whole_nanoseconds(at), device, what});
}

double RehearsedMarket::draw(std::uint32_t one, std::uint32_t other, std::uint32_t what) const {
  const std::array<std::uint32_t, 4> words =
      philox4x32({one, other, what, 0},
                 {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
  return words[0] / 4294967296.0;
}

RehearsedRent RehearsedMarket::end(Seconds at) const {
  RehearsedRent rent = rent_;
  rent.policy = policy_.name();
  rent.paid = policy_.paid();
  rent.spare = policy_.job().deadline - at;
  return rent;
}

}  // namespace motley::control
