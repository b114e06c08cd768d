// Time wasted by checkpoints and losses over replayed lifetimes, where each machine trains alone.
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <map>

#include "bench/market/halves.h"
#include "bench/market/rows.h"
#include "motley/elastic/checkpoint_interval.h"
#include "motley/elastic/lifetimes.h"
#include "peers/import/transient.h"

namespace motley::bench {
namespace {

constexpr double kForecastEvery = 3600, kNearTheLimit = 86040;
constexpr int kBegins = 20;  // trainings on each machine, kBeginEvery apart
constexpr double kBeginEvery = 60;

/// Returns the next interval of a machine that is present at `now`.
using Interval = std::function<Seconds(const elastic::RentedMachine&, Seconds now)>;

struct Waste {
  double saving = 0, lost = 0, lived = 0;
  double share() const { return (saving + lost) / lived; }
};

/// Replays one life: work, save, work. A revocation loses the work since the last checkpoint. Near
/// the limit, which is known beforehand, every policy saves in time.
void live(const elastic::RentedMachine& machine, Seconds late, Seconds save,
          const Interval& interval, Waste& waste) {
  const double end =
      machine.was_lost ? machine.end->value : machine.start.value + kNearTheLimit - save.value;
  double now = machine.start.value + late.value;
  waste.lived += std::max(0.0, end - now);
  while (now < end) {
    const double saves_at = now + interval(machine, Seconds(now)).value;
    if (saves_at + save.value > end) {
      waste.lost += machine.was_lost ? std::min(end, saves_at) - now : 0;
      waste.saving += machine.was_lost ? std::max(0.0, end - saves_at) : save.value;
      return;
    }
    waste.saving += save.value;
    now = saves_at + save.value;
  }
}

/// Hourly forecasts from what ended before.
class Forecasts {
 public:
  explicit Forecasts(const std::vector<peers::DatedLife>& lives) : lives_(lives) {}
  const elastic::LifetimeForecast& at(Seconds now) {
    const double hour = std::floor(now.value / kForecastEvery) * kForecastEvery;
    const auto found = made_.find(hour);
    if (found != made_.end()) return found->second;
    elastic::Lifetimes known;  // forecast() ignores later events
    for (const auto& life : lives_) known.add(life.name, life.machine);
    return made_.emplace(hour, known.forecast(Seconds(hour))).first->second;
  }

 private:
  const std::vector<peers::DatedLife>& lives_;
  std::map<double, elastic::LifetimeForecast> made_;
};

/// Returns the time lived per loss until now, with as much prior from the usual kinds as ours has.
Seconds mean_life(const std::vector<peers::DatedLife>& lives, Seconds now) {
  const elastic::HazardPrior usual = elastic::usual_hazard("");
  double losses = 0, lived = 0;
  for (std::size_t i = 0; i < usual.losses.size(); ++i) {
    losses += usual.losses[i];
    lived += usual.losses[i] / usual.hazard.per_second[i];
  }
  for (const auto& [name, machine] : lives) {
    if (machine.start > now) continue;
    lived += (std::min(*machine.end, now) - machine.start).value;
    losses += machine.was_lost && *machine.end <= now ? 1 : 0;
  }
  return Seconds(lived / losses);
}

}  // namespace

MarketResult checkpoint_rows(const std::string& data) {
  MOTLEY_ASSIGN(const auto lives, peers::read_transient_lifetimes(data + "/transient"));
  Forecasts forecasts(lives);
  MarketRows made;
  made.text = fmt::format(
      "152 lives, a training on each machine; share of the time that saving takes and losses take "
      "back\n{:<14} {:>10} {:>10} {:>6}  {}\n",
      "a save takes", "young-daly", "motley", "ratio", "to reach");
  for (const double save : {5.0, 20.0, 60.0, 300.0}) {
    const auto young = [&](const elastic::RentedMachine&, Seconds now) {
      // Young 1974, Daly 2006, first order.
      const double life = mean_life(lives, now).value;
      return Seconds(std::max(save, std::sqrt(2 * save * life) - save));
    };
    const auto ours = [&](const elastic::RentedMachine& machine, Seconds now) {
      elastic::RentedMachine there = machine;
      there.end.reset();
      const Seconds age = now - machine.start;
      const auto ahead = elastic::hazard_ahead({{forecasts.at(now).hazard_of(there), age}});
      return elastic::checkpoint_interval(ahead, Seconds(kNearTheLimit) - age, {Seconds(save)});
    };
    std::map<std::string, Waste> wastes;
    const auto run = [&](const std::string& policy, const Interval& interval) {
      Waste halves[2];
      for (int begin = 0; begin < kBegins; ++begin)
        for (const auto& life : lives)
          live(life.machine, Seconds(begin * kBeginEvery), Seconds(save), interval,
               halves[half_of(life.machine, lives)]);
      const Waste waste{halves[0].saving + halves[1].saving, halves[0].lost + halves[1].lost,
                        halves[0].lived + halves[1].lived};
      wastes[policy] = waste;
      made.rows.push_back({{"kind", "checkpoint"},
                           {"case", fmt::format("152 lives, {} s a save", save)},
                           {"policy", policy},
                           {"wasted", waste.share()},
                           {"saving", waste.saving / waste.lived},
                           {"lost", waste.lost / waste.lived},
                           {"wasted_chosen_on", halves[0].share()},
                           {"wasted_others", halves[1].share()}});
    };
    run("young-daly", young);
    run("motley", ours);
    made.text +=
        fmt::format("{:<14} {:>10.4f} {:>10.4f} {:>6.3f}  0.9\n", fmt::format("{} s", save),
                    wastes["young-daly"].share(), wastes["motley"].share(),
                    wastes["motley"].share() / wastes["young-daly"].share());
  }
  return made;
}

}  // namespace motley::bench
