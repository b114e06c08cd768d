#include "motley/control/rehearsal/rehearsed_market.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "motley/base/random.h"
#include "motley/simulate/drawn_times.h"

namespace motley::control {
namespace {

// Purposes of random draws.
constexpr std::uint32_t kFactor = 1, kLife = 2;

}  // namespace

RehearsedMarket::RehearsedMarket(const elastic::JobRenting& policy,
                                 const simulate::Conditions& conditions)
    : job_(policy.job()), seed_(conditions.seed) {
  const elastic::LifetimeForecast forecast = policy.lifetimes().forecast(Seconds(0));
  for (std::size_t o = 0; o < job_.market.offers.size(); ++o) {
    const elastic::Offer& offer = job_.market.offers[o];
    std::uint32_t first = 0;  // of the offers that share a factor
    while (job_.market.offers[first].kind != offer.kind ||
           job_.market.offers[first].zone != offer.zone)
      ++first;
    risks_.push_back(elastic::risk_of(offer, forecast));
    factors_.push_back(risks_[o].factor_at(draw(first, 0, kFactor)));
  }
  away_.resize(job_.machines.size());
  lives_.resize(job_.machines.size());
  until_.resize(job_.machines.size());
  std::set<std::string> rented;
  for (std::size_t m = 0; m < job_.machines.size(); ++m) {
    const elastic::JobMachine& machine = job_.machines[m];
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

void RehearsedMarket::ask(const std::vector<const elastic::JobMachine*>& machines, Seconds at) {
  for (const elastic::JobMachine* machine : machines) {
    ++rent_.asked;
    const auto known =
        std::find_if(job_.machines.begin(), job_.machines.end(),
                     [&](const elastic::JobMachine& each) { return each.name == machine->name; });
    const auto m = static_cast<std::size_t>(known - job_.machines.begin());
    const Seconds comes = std::max(at + job_.market.offers[*machine->offer].start.cold, until_[m]);
    const bool is_away = std::any_of(away_[m].begin(), away_[m].end(), [&](const auto& span) {
      return span.first <= comes && comes < span.second;
    });
    if (!is_away) happen(m, comes, AvailabilityTrace::What::kArrival);
  }
}

void RehearsedMarket::come(std::size_t machine, Seconds at) {
  if (!job_.machines[machine].offer) return;
  ++rent_.came;
  begin_life(machine, at);
}

void RehearsedMarket::go(std::size_t machine, Went went) {
  const elastic::JobMachine& gone = job_.machines[machine];
  if (!gone.offer) return;
  ++(went == Went::kGivenBack ? rent_.returned : rent_.lost);
  if (went == Went::kLost) return;
  left_.insert(left_.end(), gone.devices.begin(), gone.devices.end());
  until_[machine] = Seconds(0);
}

void RehearsedMarket::begin_life(std::size_t machine, Seconds at) {
  const std::size_t offer = *job_.machines[machine].offer;
  Seconds lost = at + risks_[offer].life(factors_[offer], draw(static_cast<std::uint32_t>(machine),
                                                               lives_[machine]++, kLife));
  for (const auto& [from, until] : away_[machine])
    if (from >= at) lost = std::min(lost, from);
  if (!std::isfinite(lost.value)) return;
  until_[machine] = lost;
  const Seconds notice = job_.market.offers[offer].notice;
  if (notice.value > 0)
    happen(machine, std::max(at, lost - notice), AvailabilityTrace::What::kNotice);
  happen(machine, lost, AvailabilityTrace::What::kLoss);
}

void RehearsedMarket::happen(std::size_t machine, Seconds at, AvailabilityTrace::What what) {
  for (const std::string& device : job_.machines[machine].devices)
    events_.push_back({simulate::whole_nanoseconds(at), device, what});
}

double RehearsedMarket::draw(std::uint32_t one, std::uint32_t other, std::uint32_t what) const {
  const std::array<std::uint32_t, 4> words =
      philox4x32({one, other, what, 0},
                 {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
  return words[0] / 4294967296.0;
}

RehearsedRent RehearsedMarket::end(const elastic::JobRenting& policy, Seconds at) const {
  RehearsedRent rent = rent_;
  rent.policy = policy.name();
  rent.paid = policy.paid();
  rent.spare = job_.deadline - at;
  return rent;
}

}  // namespace motley::control
