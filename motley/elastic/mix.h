#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/elastic/lifetimes.h"
#include "motley/elastic/market.h"

namespace motley::elastic {

/// Machines that one job rents: so many of each of a market's offers, all in one region.
struct Mix {
  std::vector<int> machines;  ///< by offer
  int servers = 0;            ///< parameter servers, of a market that has them
  bool operator==(const Mix&) const = default;
};

/// All mixes of at most `kMostOffers` offers of a region, each up to its `most`, and of every
/// number of servers. Usage error `market.mixes` where there are over kMostMixes.
Result<std::vector<Mix>> find_mixes(const Market& market);
inline constexpr int kMostOffers = 3;
inline constexpr std::size_t kMostMixes = 4000;

/// Steps per second of such machines when these are there; 0 where they cannot train.
using MixSpeed = std::function<double(const Mix&)>;

/// The job that is priced.
struct MixJob {
  double steps = 0;
  std::optional<Seconds> deadline;
  Seconds save;     ///< of one checkpoint
  int draws = 200;  ///< of lifetimes
  std::uint64_t seed = 0;
};

/// What a mix comes to, over draws of lifetimes.
struct PricedMix {
  Mix mix;
  Seconds step;        ///< with all machines
  Seconds time, slow;  ///< until all is done: mean, and what nine of ten keep within
  double cost = 0;     ///< mean
  double late = 0;     ///< share of the draws behind the deadline; 0 without one
  Seconds save_every;  ///< infinity: never needed
  bool operator==(const PricedMix&) const = default;
};

/// Piecewise replay of drawn lifetimes: what is lost is asked for again at once and trains a cold
/// start later; the others go on meanwhile. Where nobody is left, the work since the last
/// checkpoint is done again. Machines of a kind in a zone share a factor of their hazard
/// (lifetimes.h), so losses come in crowds. Everything is paid from when it is asked for.
/// None: the mix does no step. O(draws losses machines).
std::optional<PricedMix> price_mix(const Market& market, const Mix& mix,
                                   const LifetimeForecast& forecast, const MixSpeed& speed,
                                   const MixJob& job);

/// Work between two checkpoints of such machines when they begin, by checkpoint_interval: for
/// losses of the one machine there is, or, as others have what one has, of two at a time. `save`:
/// time of one. Infinity: never needed.
Seconds save_interval(const Market& market, const Mix& mix, const LifetimeForecast& forecast,
                      Seconds save);

/// Those that no other is better than in time, cost and lateness; by cost, then time.
std::vector<PricedMix> find_pareto(std::vector<PricedMix> mixes);

/// What a user asks for.
struct Wanted {
  std::optional<Seconds> deadline;
  std::optional<double> budget;
  double most_late = 0.05;  ///< of a mix that is chosen
};
/// With a deadline the cheapest that is late seldom enough and within the budget; else, with a
/// budget, the fastest within it; else the cheapest. None: no mix fits. Of `find_pareto`'s.
std::optional<std::size_t> choose_mix(const std::vector<PricedMix>& pareto, const Wanted& wanted);

}  // namespace motley::elastic
