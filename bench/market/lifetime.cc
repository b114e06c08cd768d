// Is each present machine gone within 4 or 12 hours? Asked hourly.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "bench/market/halves.h"
#include "bench/market/rows.h"
#include "motley/elastic/lifetimes.h"
#include "peers/import/transient.h"

namespace motley::bench {
namespace {

constexpr double kAnHour = 3600, kAskedUntil = 86040;

/// Sum of the answers' logarithms, and their number: over all, and over either half of the zones.
struct Score {
  double sum[3] = {}, count[3] = {};
  void add(double log, std::size_t half) {
    for (const std::size_t part : {std::size_t{0}, 1 + half}) {
      sum[part] += log;
      ++count[part];
    }
  }
  double mean(std::size_t part) const { return sum[part] / count[part]; }
};

/// Returns the forecast probability that a machine is gone within the horizon.
using Forecast = std::function<double(const elastic::RentedMachine&, Seconds now, Seconds horizon)>;

Score score(const std::vector<peers::DatedLife>& lives, Seconds horizon,
            const std::function<Forecast(Seconds now)>& forecast_at) {
  double last = 0;
  for (const auto& life : lives) last = std::max(last, life.machine.end->value);
  Score result;
  for (Seconds now(0); now.value <= last; now += Seconds(kAnHour)) {
    const Forecast forecast = forecast_at(now);
    for (const auto& life : lives) {
      const elastic::RentedMachine& machine = life.machine;
      const Seconds age = now - machine.start;
      const bool is_asked =
          age.value >= 0 && *machine.end >= now && (age + horizon).value <= kAskedUntil;
      if (!is_asked) continue;
      const bool is_gone = machine.was_lost && *machine.end - now <= horizon;
      const double p = std::clamp(forecast(machine, now, horizon), 1e-6, 1 - 1e-6);
      result.add(std::log(is_gone ? p : 1 - p), half_of(machine, lives));
    }
  }
  return result;
}

/// Returns the knowledge at a time, without later ends.
elastic::Lifetimes known_at(const std::vector<peers::DatedLife>& lives, Seconds now,
                            elastic::LifetimeOptions options) {
  elastic::Lifetimes known(options);
  for (const auto& life : lives) {
    if (life.machine.start > now) continue;
    elastic::RentedMachine seen = life.machine;
    if (*seen.end >= now) {
      seen.end.reset();
      seen.was_lost = false;
    }
    known.add(life.name, seen);
  }
  return known;
}

std::function<Forecast(Seconds)> learned(const std::vector<peers::DatedLife>& lives,
                                         elastic::LifetimeOptions options) {
  return [&lives, options](Seconds now) {
    const auto forecast = known_at(lives, now, options).forecast(now);
    return [forecast](const elastic::RentedMachine& machine, Seconds, Seconds horizon) {
      elastic::RentedMachine there = machine;
      there.end.reset();
      return forecast.gone_within(there, horizon);
    };
  };
}

/// Forecasts by the usual hazard of a kind, without learning.
Forecast usual(Seconds) {
  return [](const elastic::RentedMachine& machine, Seconds now, Seconds horizon) {
    const Seconds age = now - machine.start;
    return 1 - std::exp(-elastic::usual_hazard(machine.kind).hazard.between(age, age + horizon));
  };
}

}  // namespace

MarketResult lifetime_rows(const std::string& data) {
  MOTLEY_ASSIGN(const auto lives, peers::read_transient_lifetimes(data + "/transient"));
  MarketRows made;
  made.text = fmt::format(
      "gone within the horizon? mean log-likelihood; A: every second zone, on which the form was "
      "chosen; B: the others\n{:<12} {:>4} {:>6} {:>9} {:>9} {:>9}  {}\n",
      "policy", "h", "n", "all", "A", "B", "to reach");
  const std::vector<std::pair<std::string, std::function<Forecast(Seconds)>>> policies = {
      {"usual", usual}, {"motley", learned(lives, {})}};
  for (const double hours : {4.0, 12.0}) {
    const double to_reach = hours == 4 ? -0.135 : -0.258;
    for (const auto& [name, forecast] : policies) {
      const Score found = score(lives, Seconds(hours * kAnHour), forecast);
      made.rows.push_back({{"kind", "lifetime"},
                           {"case", fmt::format("{} h", hours)},
                           {"policy", name},
                           {"horizon_h", hours},
                           {"answers", found.count[0]},
                           {"log_likelihood", found.mean(0)},
                           {"log_likelihood_chosen_on", found.mean(1)},
                           {"log_likelihood_others", found.mean(2)},
                           {"to_reach", to_reach}});
      made.text +=
          fmt::format("{:<12} {:>4} {:>6} {:>9.4f} {:>9.4f} {:>9.4f}  {}\n", name, hours,
                      found.count[0], found.mean(0), found.mean(1), found.mean(2), to_reach);
    }
  }
  return made;
}

}  // namespace motley::bench
