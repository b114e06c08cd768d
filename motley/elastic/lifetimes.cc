#include "motley/elastic/lifetimes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "motley/base/json.h"
#include "motley/elastic/frailty_grid.h"

namespace motley::elastic {

/// A launch: losses seen, and their expected number at a factor of 1.
struct LaunchSeen {
  Seconds first, latest;  ///< starts
  double losses = 0, hazard = 0;
};

struct LifetimeForecast::Learned {
  struct Zone {
    std::vector<LaunchSeen> launches;
    std::vector<double> weights;  ///< of each value of `factors`
  };
  struct Kind {
    AgeHazard hazard;              ///< corrected by age
    std::vector<double> new_zone;  ///< weights of a zone without observations
    std::map<std::string, Zone> zones;
  };
  LifetimeOptions options;
  Seconds now;
  std::vector<double> corrections;  ///< of each piece of age
  std::vector<double> factors;      ///< kind times zone, kinds outside
  std::map<std::string, Kind> kinds;
  Kind nobody;  ///< a kind without observations

  void weigh(Kind& kind) const;
};

namespace {

using Learned = LifetimeForecast::Learned;

constexpr int kRounds = 2;  // of factors given corrections, and the reverse
constexpr std::size_t kKindValues = 15, kZoneValues = 40;

/// What a machine of one kind and zone did until now.
struct Seen {
  std::size_t launch = 0;
  std::vector<double> spent;  ///< seconds in each piece of age
  std::size_t lost_in = 0;    ///< the piece
  bool was_lost = false;
};
struct SeenZone {
  std::vector<LaunchSeen> launches;
  std::vector<Seen> machines;
};
using SeenZones = std::map<std::pair<std::string, std::string>, SeenZone>;

std::size_t launch_of(Seconds start, Seconds together, std::vector<LaunchSeen>& launches) {
  for (std::size_t l = 0; l < launches.size(); ++l)
    if (start >= launches[l].first - together && start <= launches[l].latest + together) {
      launches[l].first = std::min(launches[l].first, start);
      launches[l].latest = std::max(launches[l].latest, start);
      return l;
    }
  launches.push_back({start, start, 0, 0});
  return launches.size() - 1;
}

SeenZones see(const std::map<std::string, RentedMachine>& machines, const LifetimeOptions& options,
              const std::vector<Seconds>& ages, Seconds now) {
  std::vector<const RentedMachine*> in_order;
  for (const auto& [name, machine] : machines)
    if (machine.start <= now) in_order.push_back(&machine);
  std::stable_sort(in_order.begin(), in_order.end(),
                   [](const auto* a, const auto* b) { return a->start < b->start; });
  SeenZones zones;
  for (const RentedMachine* machine : in_order) {
    SeenZone& zone = zones[{machine->kind, machine->zone}];
    const Seconds until = machine->end ? std::min(*machine->end, now) : now;
    const Seconds age = std::min(until - machine->start, options.limit - options.near_limit);
    Seen seen;
    seen.launch = launch_of(machine->start, options.together, zone.launches);
    seen.spent = spent_in(ages, Seconds(0), age);
    seen.was_lost = machine->was_lost && machine->end && *machine->end <= now &&
                    *machine->end - machine->start < options.limit - options.near_limit;
    seen.lost_in = piece_of(ages, age);
    zone.machines.push_back(std::move(seen));
  }
  return zones;
}

double expected(const AgeHazard& hazard, const std::vector<double>& spent) {
  double sum = 0;
  for (std::size_t i = 0; i < spent.size(); ++i) sum += hazard.per_second[i] * spent[i];
  return sum;
}

AgeHazard corrected(AgeHazard hazard, const std::vector<double>& corrections) {
  for (std::size_t i = 0; i < corrections.size(); ++i) hazard.per_second[i] *= corrections[i];
  return hazard;
}

/// Returns log(m^losses / (shape + m hazard)^(shape + losses)) for a factor m, plus a constant.
double log_likelihood(const LaunchSeen& launch, double m, double shape) {
  return launch.losses * std::log(m) -
         (shape + launch.losses) * std::log1p(m * launch.hazard / shape);
}

double expected_factor(const Learned& learned, const std::vector<double>& weights,
                       const LaunchSeen& launch) {
  const double shape = learned.options.launch_shape;
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double m = learned.factors[i];
    sum += weights[i] * m * (shape + launch.losses) / (shape + m * launch.hazard);
  }
  return sum;
}

/// Fills kinds with their zones' launches, under the present corrections.
void fill_kinds(const SeenZones& zones, Learned& learned) {
  learned.kinds.clear();
  for (const auto& [key, seen] : zones) {
    Learned::Kind& kind = learned.kinds[key.first];
    if (kind.hazard.ages.empty())
      kind.hazard = corrected(usual_hazard(key.first).hazard, learned.corrections);
    Learned::Zone& zone = kind.zones[key.second];
    zone.launches = seen.launches;
    for (const Seen& machine : seen.machines) {
      zone.launches[machine.launch].hazard += expected(kind.hazard, machine.spent);
      zone.launches[machine.launch].losses += machine.was_lost ? 1 : 0;
    }
  }
  for (auto& [name, kind] : learned.kinds) learned.weigh(kind);
}

/// Corrects by age: for each piece a gamma prior of mean 1, and losses at the expected factors.
void correct(const SeenZones& zones, Learned& learned) {
  const HazardPrior pooled = usual_hazard("");
  std::vector<double> lost = pooled.losses, hazard = pooled.losses;
  for (const auto& [key, seen] : zones) {
    const Learned::Kind& kind = learned.kinds.at(key.first);
    const Learned::Zone& zone = kind.zones.at(key.second);
    const AgeHazard usual = usual_hazard(key.first).hazard;
    std::vector<double> factor;
    for (const LaunchSeen& launch : zone.launches)
      factor.push_back(expected_factor(learned, zone.weights, launch));
    for (const Seen& machine : seen.machines) {
      for (std::size_t i = 0; i < hazard.size(); ++i)
        hazard[i] += factor[machine.launch] * usual.per_second[i] * machine.spent[i];
      if (machine.was_lost) lost[machine.lost_in] += 1;
    }
  }
  for (std::size_t i = 0; i < hazard.size(); ++i) learned.corrections[i] = lost[i] / hazard[i];
}

/// Finds a machine's launch; an empty one if none was seen.
LaunchSeen find_launch(const Learned::Zone& zone, Seconds start, Seconds together) {
  for (const LaunchSeen& launch : zone.launches)
    if (start >= launch.first - together && start <= launch.latest + together) return launch;
  return {};
}

/// The inputs of a question about one machine.
struct View {
  AgeHazard hazard;
  const std::vector<double>* weights = nullptr;
  LaunchSeen launch;
};
View view_of(const Learned& learned, const RentedMachine& machine) {
  const auto found = learned.kinds.find(machine.kind);
  if (found == learned.kinds.end())
    return {corrected(usual_hazard(machine.kind).hazard, learned.corrections),
            &learned.nobody.new_zone,
            {}};
  const Learned::Kind& kind = found->second;
  const auto zone = kind.zones.find(machine.zone);
  if (zone == kind.zones.end()) return {kind.hazard, &kind.new_zone, {}};
  return {kind.hazard, &zone->second.weights,
          find_launch(zone->second, machine.start, learned.options.together)};
}

}  // namespace

// Weighs each zone of a kind given all its zones, which share the kind's factor.
void LifetimeForecast::Learned::weigh(Kind& kind) const {
  const FrailtyGrid own = log_normal_grid(options.kind_spread, kKindValues);
  const FrailtyGrid within = gamma_grid(options.zone_shape, kZoneValues);
  std::vector<double> of_kind;
  for (const double weight : own.weights) of_kind.push_back(std::log(weight));
  std::map<std::string, std::vector<double>> logs;
  for (const auto& [name, zone] : kind.zones) {
    std::vector<double>& of_zone = logs[name];
    for (std::size_t at = 0; at < factors.size(); ++at) {
      of_zone.push_back(std::log(within.weights[at % kZoneValues]));
      for (const LaunchSeen& launch : zone.launches)
        of_zone[at] += log_likelihood(launch, factors[at], options.launch_shape);
    }
    for (std::size_t i = 0; i < kKindValues; ++i)
      of_kind[i] += log_sum({of_zone.data() + i * kZoneValues, kZoneValues});
  }
  const double total = log_sum(of_kind);
  for (auto& [name, zone] : kind.zones) {
    zone.weights = logs[name];
    for (std::size_t i = 0; i < kKindValues; ++i) {
      const double of_row = log_sum({logs[name].data() + i * kZoneValues, kZoneValues});
      for (std::size_t j = 0; j < kZoneValues; ++j) {
        double& weight = zone.weights[i * kZoneValues + j];
        weight = std::exp(of_kind[i] - total + weight - of_row);
      }
    }
  }
  kind.new_zone.resize(factors.size());
  for (std::size_t at = 0; at < factors.size(); ++at)
    kind.new_zone[at] =
        std::exp(of_kind[at / kZoneValues] - total) * within.weights[at % kZoneValues];
}

void Lifetimes::begin(const std::string& name, const std::string& kind, const std::string& zone,
                      Seconds start) {
  machines_[name] = {kind, zone, start, std::nullopt, false};
}

void Lifetimes::end_lost(const std::string& name, Seconds at) {
  const auto found = machines_.find(name);
  if (found == machines_.end() || found->second.end) return;
  found->second.end = std::max(at, found->second.start);
  found->second.was_lost = true;
}

void Lifetimes::end_given_back(const std::string& name, Seconds at) {
  const auto found = machines_.find(name);
  if (found == machines_.end() || found->second.end) return;
  found->second.end = std::max(at, found->second.start);
}

LifetimeForecast Lifetimes::forecast(Seconds now) const {
  auto learned = std::make_shared<LifetimeForecast::Learned>();
  learned->options = options_;
  learned->now = now;
  for (const double own : log_normal_grid(options_.kind_spread, kKindValues).values)
    for (const double within : gamma_grid(options_.zone_shape, kZoneValues).values)
      learned->factors.push_back(own * within);
  const std::vector<Seconds> ages = usual_hazard("").hazard.ages;
  learned->corrections.assign(ages.size(), 1);
  const SeenZones zones = see(machines_, options_, ages, now);
  fill_kinds(zones, *learned);
  for (int round = 1; round < kRounds; ++round) {
    correct(zones, *learned);
    fill_kinds(zones, *learned);
  }
  learned->weigh(learned->nobody);
  return LifetimeForecast(std::move(learned));
}

double LifetimeForecast::gone_within(const RentedMachine& machine, Seconds horizon) const {
  const View view = view_of(*learned_, machine);
  const Seconds age = learned_->now - machine.start;
  if (age + horizon >= learned_->options.limit) return 1;
  const double added = view.hazard.between(age, age + horizon);
  const double shape = learned_->options.launch_shape;
  double stays = 0;
  for (std::size_t i = 0; i < learned_->factors.size(); ++i) {
    const double m = learned_->factors[i];
    const double before = shape + m * view.launch.hazard;
    stays += (*view.weights)[i] *
             std::exp(-(shape + view.launch.losses) * std::log1p(m * added / before));
  }
  return 1 - stays;
}

double LifetimeForecast::gone_within(const std::string& kind, const std::string& zone,
                                     Seconds horizon) const {
  return gone_within(RentedMachine{kind, zone, learned_->now, std::nullopt, false}, horizon);
}

AgeHazard LifetimeForecast::hazard_of(const RentedMachine& machine) const {
  View view = view_of(*learned_, machine);
  const double factor = expected_factor(*learned_, *view.weights, view.launch);
  for (double& rate : view.hazard.per_second) rate *= factor;
  return view.hazard;
}

AgeHazard LifetimeForecast::hazard_of(const std::string& kind, const std::string& zone) const {
  return hazard_of(RentedMachine{kind, zone, learned_->now, std::nullopt, false});
}

std::vector<double> LifetimeForecast::factors(const std::string& kind, const std::string& zone,
                                              std::size_t n) const {
  const View view = view_of(*learned_, {kind, zone, learned_->now, std::nullopt, false});
  std::vector<std::pair<double, double>> sorted;
  for (std::size_t i = 0; i < learned_->factors.size(); ++i)
    sorted.emplace_back(learned_->factors[i], (*view.weights)[i]);
  std::sort(sorted.begin(), sorted.end());
  std::vector<double> quantiles;
  double below = 0;
  std::size_t at = 0;
  for (std::size_t q = 0; q < n; ++q) {
    const double wanted = (static_cast<double>(q) + 0.5) / static_cast<double>(n);
    while (at + 1 < sorted.size() && below + sorted[at].second < wanted)
      below += sorted[at++].second;
    quantiles.push_back(sorted[at].first);
  }
  return quantiles;
}

AgeHazard LifetimeForecast::common(const std::string& kind) const {
  return view_of(*learned_, {kind, "", learned_->now, std::nullopt, false}).hazard;
}

const LifetimeOptions& LifetimeForecast::options() const { return learned_->options; }

}  // namespace motley::elastic
