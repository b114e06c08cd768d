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

/// The machines that one job rents: a number of each offer of a market, all in one region.
struct Mix {
  std::vector<int> machines;  ///< by offer
  int servers = 0;            ///< parameter servers, if the market has them
  bool operator==(const Mix&) const = default;
};

/// Lists all mixes of at most `kMostOffers` offers of a region, each up to its `most`, with each
/// number of servers. Usage error `market.mixes` beyond kMostMixes.
Result<std::vector<Mix>> find_mixes(const Market& market);
inline constexpr int kMostOffers = 3;
inline constexpr std::size_t kMostMixes = 4000;

/// Returns steps per second of these machines; 0 where they cannot train.
using MixSpeed = std::function<double(const Mix&)>;

struct MixJob {
  double steps = 0;
  std::optional<Seconds> deadline;
  Seconds save;     ///< of one checkpoint
  int draws = 200;  ///< of lifetimes
  std::uint64_t seed = 0;
};

/// A mix's outcome over draws of lifetimes.
struct PricedMix {
  Mix mix;
  Seconds step;        ///< with all machines
  Seconds time, slow;  ///< until all is done: mean, and the 90th percentile
  double cost = 0;     ///< mean
  double late = 0;     ///< share of draws past the deadline; 0 without one
  Seconds save_every;  ///< infinity: never needed
  bool operator==(const PricedMix&) const = default;
};

/// Prices a mix by piecewise replay of drawn lifetimes. A lost machine is requested again at once
/// and trains a cold start later; the others continue. With no machine left, the work since the
/// last checkpoint is recomputed. Machines of a kind in a zone share a factor of their hazard
/// (lifetimes.h), so losses come in crowds. Machines are paid for from their request on. Returns
/// none if the mix cannot train. O(draws losses machines).
std::optional<PricedMix> price_mix(const Market& market, const Mix& mix,
                                   const LifetimeForecast& forecast, const MixSpeed& speed,
                                   const MixJob& job);

/// Returns the work between checkpoints by checkpoint_interval: for losses of a single machine, or
/// of two at a time where others hold its state. `save`: time of one. Infinity: never needed.
Seconds save_interval(const Market& market, const Mix& mix, const LifetimeForecast& forecast,
                      Seconds save);

/// Keeps the mixes that no other beats in time, cost and lateness; ordered by cost, then time.
std::vector<PricedMix> find_pareto(std::vector<PricedMix> mixes);

/// A user's requirements.
struct Wanted {
  std::optional<Seconds> deadline;
  std::optional<double> budget;
  double most_late = 0.05;  ///< the most that a chosen mix may be
};
/// Chooses from `find_pareto`'s. With a deadline: the cheapest within budget that is late seldom
/// enough. Else with a budget: the fastest within it. Else the cheapest. None: no mix fits.
std::optional<std::size_t> choose_mix(const std::vector<PricedMix>& pareto, const Wanted& wanted);

}  // namespace motley::elastic
