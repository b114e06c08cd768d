// The cost of a job with a deadline on rented machines, over that of knowing the market beforehand.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "bench/market/halves.h"
#include "bench/market/rows.h"
#include "motley/base/random.h"
#include "peers/import/transient.h"
#include "peers/policies/market_replay.h"

namespace motley::bench {
namespace {

constexpr double kTick = 300, kHour = 3600;

/// A market, its origin, and the half for development (0) or judging (1).
struct MarketCase {
  std::string name, kind;
  peers::SpotMarket market;
  std::size_t half = 0;
};

double exponential(double mean, SplitMix64& random) {
  return -mean * std::log(1 - random.uniform());
}

/// Alternates spells of spot machines and gaps, in seconds, until `ticks` are full.
std::vector<bool> trace_of(const std::function<double()>& spell, const std::function<double()>& gap,
                           bool is_there, std::size_t ticks) {
  std::vector<bool> trace;
  while (trace.size() < ticks) {
    const double seconds = is_there ? spell() : gap();
    const auto length = static_cast<std::size_t>(std::max(1.0, std::round(seconds / kTick)));
    trace.insert(trace.end(), std::min(length, ticks - trace.size()), is_there);
    is_there = !is_there;
  }
  return trace;
}

/// Length of jobs and deadlines, and costs of changes.
struct Shape {
  double work_h, slack;  // relative to the work
  int change_over;       // ticks
  double discount;       // spot over on demand
};
constexpr Shape kShapes[] = {{12, 0.15, 1, 0.35}, {12, 0.5, 2, 0.3},  {24, 0.3, 1, 0.35},
                             {24, 1.0, 4, 0.35},  {48, 0.25, 2, 0.3}, {48, 0.6, 1, 0.25}};

peers::SpotMarket market_of(const Shape& shape) {
  peers::SpotMarket market;
  market.work = static_cast<int>(shape.work_h * kHour / kTick);
  market.deadline = static_cast<int>(market.work * (1 + shape.slack)) + shape.change_over;
  market.change_over = shape.change_over;
  market.spot = shape.discount;
  market.on_demand = 1;
  return market;
}

/// Adds consecutive lives of one kind in one zone from a random one on, with exponential gaps.
void add_traces(const std::vector<peers::DatedLife>& lives, int draws,
                std::vector<MarketCase>& cases) {
  std::map<std::string, std::vector<elastic::RentedMachine>> zones;
  for (const auto& life : lives)
    zones[life.machine.kind + " " + life.machine.zone].push_back(life.machine);
  SplitMix64 random(18);
  for (const auto& [name, machines] : zones)
    for (const Shape& shape : kShapes)
      for (const double gap_h : {0.5, 2.0, 8.0})
        for (int draw = 0; draw < draws; ++draw) {
          std::size_t next = random.below(machines.size());
          // The job begins at random within the first life.
          double begun = random.uniform();
          const auto spell = [&] {
            const auto& machine = machines[next++ % machines.size()];
            const double life = (*machine.end - machine.start).value;
            return life * (1 - std::exchange(begun, 0.0));
          };
          const auto gap = [&] { return exponential(gap_h * kHour, random); };
          MarketCase made{fmt::format("{} gap {} h work {} h slack {} draw {}", name, gap_h,
                                      shape.work_h, shape.slack, draw),
                          "lives", market_of(shape), half_of(machines[0], lives)};
          made.market.is_there = trace_of(spell, gap, random.uniform() < 0.7,
                                          static_cast<std::size_t>(made.market.deadline));
          cases.push_back(std::move(made));
        }
}

/// Adds drawn spells and gaps: exponential, or with a falling hazard (Weibull of shape 0.6).
void add_generated(int draws, std::vector<MarketCase>& cases) {
  SplitMix64 random(19);
  for (const bool is_falling : {false, true})
    for (const double spell_h : {1.0, 4.0, 12.0})
      for (const double gap_h : {0.5, 2.0, 6.0})
        for (const Shape& shape : kShapes)
          for (int draw = 0; draw < draws; ++draw) {
            const auto spell = [&] {
              const double drawn = exponential(1, random);
              const double mean_of_weibull = std::tgamma(1 + 1 / 0.6);
              return spell_h * kHour *
                     (is_falling ? std::pow(drawn, 1 / 0.6) / mean_of_weibull : drawn);
            };
            const auto gap = [&] { return exponential(gap_h * kHour, random); };
            MarketCase made{fmt::format("{} spell {} h gap {} h work {} h slack {} draw {}",
                                        is_falling ? "weibull" : "exponential", spell_h, gap_h,
                                        shape.work_h, shape.slack, draw),
                            "generated", market_of(shape), static_cast<std::size_t>(draw % 2)};
            made.market.is_there = trace_of(spell, gap, random.uniform() < 0.5,
                                            static_cast<std::size_t>(made.market.deadline));
            cases.push_back(std::move(made));
          }
}

struct Sum {
  double cost = 0, excess = 0, best = 0;
  int late = 0, cases = 0;
};

}  // namespace

MarketResult market_rows(const std::string& data, bool is_full) {
  MOTLEY_ASSIGN(const auto lives, peers::read_transient_lifetimes(data + "/transient"));
  std::vector<MarketCase> cases;
  add_traces(lives, is_full ? 10 : 1, cases);
  add_generated(is_full ? 20 : 2, cases);
  elastic::LifetimeOptions for_ever;  // spells end only on their own
  for_ever.limit = Seconds(1e12);
  MarketRows made;
  std::map<std::pair<std::string, std::string>, Sum> sums;
  for (const MarketCase& each : cases) {
    const double best = peers::clairvoyant_cost(each.market);
    for (const std::string& policy : peers::deadline_policies()) {
      MOTLEY_ASSIGN(const auto renter,
                    peers::make_deadline_policy(policy, peers::job_of(each.market, "any", "any"),
                                                elastic::Lifetimes(for_ever)));
      const peers::MarketOutcome paid = peers::replay_market(each.market, *renter);
      for (const std::string& set : {each.kind, each.kind + (each.half == 0 ? " A" : " B")}) {
        Sum& sum = sums[{set, policy}];
        sum.cost += paid.cost;
        sum.best += best;
        sum.excess += paid.cost / best - 1;
        sum.late += paid.is_late ? 1 : 0;
        ++sum.cases;
      }
      made.rows.push_back({{"kind", "market"},
                           {"case", each.name},
                           {"policy", policy},
                           {"cost", paid.cost},
                           {"best_cost", best},
                           {"late", paid.is_late},
                           {"half", each.half == 0 ? "A" : "B"}});
    }
  }
  made.text = fmt::format(
      "jobs with deadlines: cost above the clairvoyant optimum; A: chosen on, B: others; to reach: "
      "half of greedy's, below both\n{:<14} {:<10} {:>6} {:>10} {:>11} {:>10} {:>6}\n",
      "set", "policy", "cases", "mean %", "of greedy's", "in all %", "late");
  for (const auto& [key, sum] : sums) {
    const double greedy = sums[{key.first, "greedy"}].excess;
    made.text += fmt::format("{:<14} {:<10} {:>6} {:>10.2f} {:>11.3f} {:>10.2f} {:>6}\n", key.first,
                             key.second, sum.cases, 100 * sum.excess / sum.cases,
                             sum.excess / greedy, 100 * (sum.cost / sum.best - 1), sum.late);
  }
  return made;
}

}  // namespace motley::bench
