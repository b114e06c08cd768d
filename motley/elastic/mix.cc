#include "motley/elastic/mix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "motley/base/random.h"
#include "motley/elastic/checkpoint_interval.h"
#include "motley/elastic/spot_risk.h"

namespace motley::elastic {
namespace {

constexpr Seconds kNeverSeconds{std::numeric_limits<double>::infinity()};
constexpr int kMostLosses = 10'000;  // per draw; beyond, it counts as never done

void add_mixes(const Market& market, const std::string& region, std::size_t offer, Mix& mix,
               std::vector<Mix>& mixes) {
  if (mixes.size() > kMostMixes) return;
  if (offer == market.offers.size()) {
    const bool is_empty = std::all_of(mix.machines.begin(), mix.machines.end(),
                                      [](int machines) { return machines == 0; });
    if (is_empty) return;
    const int servers = market.server ? market.server->most : 0;
    for (mix.servers = std::min(1, servers); mix.servers <= servers; ++mix.servers)
      mixes.push_back(mix);
    return;
  }
  const auto offers = std::count_if(mix.machines.begin(), mix.machines.end(),
                                    [](int machines) { return machines > 0; });
  const bool may_have = market.offers[offer].region == region && offers < kMostOffers;
  for (int machines = 0; machines <= (may_have ? market.offers[offer].most : 0); ++machines) {
    mix.machines[offer] = machines;
    add_mixes(market, region, offer + 1, mix, mixes);
  }
  mix.machines[offer] = 0;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

/// Returns the checkpoint interval: for losses of a single machine, or of two at a time.
Seconds save_interval(const Market& market, const Mix& mix, const std::vector<SpotRisk>& risks,
                      Seconds save) {
  std::vector<AgeHazard> hazards;
  Seconds notice = kNeverSeconds, recovery(0);
  for (std::size_t o = 0; o < mix.machines.size(); ++o)
    for (int i = 0; i < mix.machines[o]; ++i) {
      AgeHazard hazard = risks[o].hazard;
      for (double& rate : hazard.per_second) rate *= mean(risks[o].factors);
      hazards.push_back(std::move(hazard));
      if (market.offers[o].is_spot) notice = std::min(notice, market.offers[o].notice);
      recovery = std::max(recovery, market.offers[o].start.cold);
    }
  const AgeHazard ahead =
      hazards.size() == 1 ? hazards[0] : mirrored(hazards[0], hazards[1], recovery);
  const SavingCosts costs{.save = save, .notice = hazards.size() == 1 ? notice : Seconds(0)};
  return checkpoint_interval(ahead, kNeverSeconds, costs);
}

struct Machine {
  std::size_t offer = 0;
  Seconds trains_at, lost_at;
};

/// One draw of all lifetimes.
class Replay {
 public:
  Replay(const Market& market, const std::vector<SpotRisk>& risks, const MixSpeed& speed,
         SplitMix64& random)
      : market_(market), risks_(risks), speed_(speed), random_(random) {
    std::map<std::pair<std::string, std::string>, double> shared;
    for (std::size_t o = 0; o < market.offers.size(); ++o) {
      const auto key = std::pair(market.offers[o].kind, market.offers[o].zone);
      const double place = shared.try_emplace(key, random.uniform()).first->second;
      factors_.push_back(risks[o].factor_at(place));
    }
  }

  /// Returns seconds until all steps are done. `useful`: share of time not spent on saving.
  Seconds run(const Mix& mix, double steps, double useful, Seconds save_every) {
    std::vector<Machine> machines;
    for (std::size_t o = 0; o < mix.machines.size(); ++o)
      for (int i = 0; i < mix.machines[o]; ++i) machines.push_back(rent(o, Seconds(0)));
    Seconds now(0);
    for (int losses = 0; losses < kMostLosses;) {
      const double rate = useful * speed_(present(mix, machines, now));
      Seconds next = kNeverSeconds;
      for (const Machine& machine : machines) {
        if (machine.trains_at > now) next = std::min(next, machine.trains_at);
        next = std::min(next, machine.lost_at);
      }
      if (rate > 0 && now + Seconds(steps / rate) <= next) return now + Seconds(steps / rate);
      if (!std::isfinite(next.value)) return kNeverSeconds;
      steps -= rate * (next - now).value;
      now = next;
      bool is_lost = false;
      for (Machine& machine : machines)
        if (machine.lost_at <= now) {
          machine = rent(machine.offer, now);
          is_lost = true;
          ++losses;
        }
      // No machine is left with the state: half an interval is recomputed on average.
      if (is_lost && rate > 0 && is_alone(machines, now))
        steps += rate * std::min(save_every, now).value / 2;
    }
    return kNeverSeconds;
  }

 private:
  Machine rent(std::size_t offer, Seconds now) {
    const Seconds life = risks_[offer].life(factors_[offer], random_.uniform());
    return {offer, now + market_.offers[offer].start.cold, now + life};
  }
  static Mix present(const Mix& mix, const std::vector<Machine>& machines, Seconds now) {
    Mix there{std::vector<int>(mix.machines.size(), 0), mix.servers};
    for (const Machine& machine : machines)
      if (machine.trains_at <= now) ++there.machines[machine.offer];
    return there;
  }
  static bool is_alone(const std::vector<Machine>& machines, Seconds now) {
    return std::none_of(machines.begin(), machines.end(),
                        [&](const Machine& machine) { return machine.trains_at <= now; });
  }

  const Market& market_;
  const std::vector<SpotRisk>& risks_;
  const MixSpeed& speed_;
  SplitMix64& random_;
  std::vector<double> factors_;
};

double price_per_hour(const Market& market, const Mix& mix) {
  double sum = market.server ? market.server->price_per_hour * mix.servers : 0;
  for (std::size_t o = 0; o < mix.machines.size(); ++o)
    sum += market.offers[o].price_per_hour * mix.machines[o];
  return sum;
}

bool is_beaten(const PricedMix& one, const PricedMix& by) {
  return by.time <= one.time && by.cost <= one.cost && by.late <= one.late &&
         (by.time < one.time || by.cost < one.cost || by.late < one.late);
}

}  // namespace

Seconds save_interval(const Market& market, const Mix& mix, const LifetimeForecast& forecast,
                      Seconds save) {
  std::vector<SpotRisk> risks;
  for (const Offer& offer : market.offers) risks.push_back(risk_of(offer, forecast));
  return save_interval(market, mix, risks, save);
}

Result<std::vector<Mix>> find_mixes(const Market& market) {
  std::set<std::string> regions;
  for (const Offer& offer : market.offers) regions.insert(offer.region);
  std::vector<Mix> mixes;
  for (const std::string& region : regions) {
    Mix mix{std::vector<int>(market.offers.size(), 0), 0};
    add_mixes(market, region, 0, mix, mixes);
  }
  if (mixes.size() <= kMostMixes) return mixes;
  return usage_error("market.mixes", fmt::format("over {} mixes of machines; give offers a smaller "
                                                 "'most', or leave some out",
                                                 kMostMixes));
}

std::optional<PricedMix> price_mix(const Market& market, const Mix& mix,
                                   const LifetimeForecast& forecast, const MixSpeed& speed,
                                   const MixJob& job) {
  const double rate = speed(mix);
  if (!(rate > 0)) return std::nullopt;
  std::vector<SpotRisk> risks;
  for (const Offer& offer : market.offers) risks.push_back(risk_of(offer, forecast));
  PricedMix priced{.mix = mix, .step = Seconds(1 / rate)};
  priced.save_every = save_interval(market, mix, risks, job.save);
  const double useful = std::isfinite(priced.save_every.value)
                            ? priced.save_every.value / (priced.save_every + job.save).value
                            : 1;
  SplitMix64 random(job.seed);
  std::vector<double> times;
  for (int draw = 0; draw < job.draws; ++draw)
    times.push_back(
        Replay(market, risks, speed, random).run(mix, job.steps, useful, priced.save_every).value);
  std::sort(times.begin(), times.end());
  priced.time = Seconds(mean(times));
  priced.slow = Seconds(times[static_cast<std::size_t>(0.9 * (job.draws - 1) + 0.5)]);
  priced.cost = priced.time.value / 3600 * price_per_hour(market, mix);
  if (job.deadline)
    priced.late =
        static_cast<double>(std::count_if(
            times.begin(), times.end(), [&](double time) { return time > job.deadline->value; })) /
        job.draws;
  if (!std::isfinite(priced.cost)) return std::nullopt;
  return priced;
}

std::vector<PricedMix> find_pareto(std::vector<PricedMix> mixes) {
  std::vector<PricedMix> best;
  for (const PricedMix& mix : mixes)
    if (std::none_of(mixes.begin(), mixes.end(),
                     [&](const PricedMix& other) { return is_beaten(mix, other); }))
      best.push_back(mix);
  std::stable_sort(best.begin(), best.end(), [](const PricedMix& a, const PricedMix& b) {
    return std::pair(a.cost, a.time) < std::pair(b.cost, b.time);
  });
  return best;
}

std::optional<std::size_t> choose_mix(const std::vector<PricedMix>& pareto, const Wanted& wanted) {
  const auto fits = [&](const PricedMix& mix) {
    return (!wanted.budget || mix.cost <= *wanted.budget) &&
           (!wanted.deadline || mix.late <= wanted.most_late);
  };
  const bool by_time = wanted.budget && !wanted.deadline;
  std::optional<std::size_t> chosen;
  for (std::size_t i = 0; i < pareto.size(); ++i) {
    if (!fits(pareto[i])) continue;
    if (!chosen ||
        (by_time ? pareto[i].time < pareto[*chosen].time : pareto[i].cost < pareto[*chosen].cost))
      chosen = i;
  }
  return chosen;
}

}  // namespace motley::elastic
