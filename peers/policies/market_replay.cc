#include "peers/policies/market_replay.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>

namespace motley::peers {
namespace {

constexpr int kMostTicks = 1'000'000;  // for a policy that never ends

/// What is rented, and for how many more ticks it does not train.
struct Rented {
  Holding holding = Holding::kNothing;
  int starting = 0;
};

void take(const std::vector<policy::Choice>& choices, int change_over, Rented& rented) {
  for (const policy::Choice& choice : choices) {
    const auto* rent = std::get_if<policy::Rent>(&choice.action);
    if (rent == nullptr) continue;
    if (rent->count < 0) {
      rented = {};
    } else {
      rented = {rent->spot ? Holding::kSpot : Holding::kOnDemand, change_over};
    }
  }
}

}  // namespace

DeadlineJob job_of(const SpotMarket& market, const std::string& kind, const std::string& zone) {
  const double an_hour = 3600 / market.tick.value;
  return {.kind = kind,
          .zone = zone,
          .machines = 1,
          .steps = market.work,
          .step = market.tick,
          .deadline = market.tick * market.deadline,
          .terms = {market.spot * an_hour, market.on_demand * an_hour,
                    market.tick * market.change_over, market.tick}};
}

MarketOutcome replay_market(const SpotMarket& market, policy::Policy& policy) {
  MarketOutcome outcome;
  Rented rented;
  const DeadlineJob job = job_of(market, "any", "any");
  int work = market.work;
  for (int at = 0; work > 0 && at < kMostTicks; ++at) {
    const Seconds now = market.tick * at;
    const bool has_spot = market.has_spot(at);
    if (rented.holding == Holding::kSpot && !has_spot) {
      policy.observe(policy::LossSeen{"any", now});
      rented = {};
    }
    const double price = has_spot ? job.terms.spot_per_hour : policy::kNotOffered;
    take(policy.observe(policy::PriceSeen{"any", "any", now, price}), market.change_over, rented);
    if (rented.holding == Holding::kNothing) continue;
    outcome.cost += rented.holding == Holding::kSpot ? market.spot : market.on_demand;
    if (rented.starting > 0) {
      --rented.starting;
      continue;
    }
    --work;
    outcome.done_at = at + 1;
    policy::StepSeen step;
    step.step = market.work - work;
    step.at = now + market.tick;
    policy.observe(step);
  }
  outcome.is_late = work > 0 || outcome.done_at > market.deadline;
  return outcome;
}

double clairvoyant_cost(const SpotMarket& market) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const auto works = static_cast<std::size_t>(market.work) + 1;
  const auto starts = static_cast<std::size_t>(market.change_over) + 1;
  // States: nothing, then spot by remaining change-over ticks, then on demand.
  const std::size_t states = 1 + 2 * starts;
  std::vector<double> later(works * states, kNever), now;
  std::fill(later.begin(), later.begin() + static_cast<std::ptrdiff_t>(states), 0.0);
  for (int at = market.deadline - 1; at >= 0; --at) {
    now.assign(works * states, kNever);
    std::fill(now.begin(), now.begin() + static_cast<std::ptrdiff_t>(states), 0.0);
    const bool has_spot = market.has_spot(at);
    for (std::size_t work = 1; work < works; ++work) {
      const auto run = [&](std::size_t first, std::size_t starting) {
        return starting > 0 ? later[work * states + first + starting - 1]
                            : later[(work - 1) * states + first];
      };
      const std::size_t spot = 1, on_demand = 1 + starts;
      const double from_nothing =
          std::min({later[work * states], has_spot ? market.spot + run(spot, starts - 1) : kNever,
                    market.on_demand + run(on_demand, starts - 1)});
      now[work * states] = from_nothing;
      for (std::size_t starting = 0; starting < starts; ++starting) {
        now[work * states + spot + starting] =
            has_spot ? std::min(from_nothing, market.spot + run(spot, starting)) : from_nothing;
        now[work * states + on_demand + starting] =
            std::min(from_nothing, market.on_demand + run(on_demand, starting));
      }
    }
    std::swap(later, now);
  }
  const double best = later[(works - 1) * states];
  return best < kNever ? best : market.on_demand * (market.work + market.change_over);
}

}  // namespace motley::peers
