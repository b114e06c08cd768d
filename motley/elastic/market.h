#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/elastic/checkpoint_time.h"
#include "motley/elastic/time_left.h"

namespace motley::elastic {

/// Machines of one kind in one zone for rent, spot or on demand.
struct Offer {
  std::string kind;  ///< of its devices, as in a cluster file
  int devices = 1;   ///< per machine
  std::string zone;
  std::string region;  ///< a job stays in one region
  bool is_spot = false;
  double price_per_hour = 0;
  int most = 4;  ///< the most per job
  StartTimes start;
  Seconds notice{0};                      ///< before a revocation
  std::optional<Seconds> limit;           ///< age of certain revocation
  std::optional<double> losses_per_hour;  ///< at any age; none: by age, from lifetimes
  std::optional<Seconds> step;            ///< one machine alone with servers; only with [server]
  std::optional<Bytes> memory;            ///< of a device; none: the kind's
  int threads = 1;                        ///< of a CPU device
  double speed = 1;                       ///< of a CPU device: share of a core
  bool operator==(const Offer&) const = default;
};

/// Parameter servers of a job with asynchronous workers (server_queue.h).
struct ServerOffer {
  Seconds service;  ///< of a step
  double price_per_hour = 0;
  int most = 2;
  bool operator==(const ServerOffer&) const = default;
};

/// A market: what can be rented where, and prices (docs/formats/market.md).
struct Market {
  std::string name;
  std::string lifetimes;  ///< motley.lifetimes/1 file beside this one; "": the usual ones
  BytesPerSecond bandwidth{1.25e9};  ///< between machines of a region
  Seconds latency{100e-6};
  Seconds checkpoint_fixed{4};  ///< per checkpoint, beside its bytes
  BytesPerSecond checkpoint_rate{50e6};
  std::vector<Offer> offers;
  std::optional<ServerOffer> server;
  bool operator==(const Market&) const = default;
};

/// Parses TOML. Errors "NAME:LINE: ..." (usage): `market.unknown-key` with a suggestion,
/// `.missing-key` (an offer needs a price), `.value`, `.schema`, `.parse`.
Result<Market> parse_market(std::string_view text, const std::string& name);
Result<Market> read_market(const std::string& path);
/// Prints canonical TOML; parse_market(print_market(m)) == m.
std::string print_market(const Market& market);

/// Returns the time of a checkpoint of this state (parameters and optimizer states).
inline Seconds checkpoint_time(const Market& market, Bytes state) {
  return estimate_checkpoint(
      {market.checkpoint_fixed, Seconds(1 / market.checkpoint_rate.value), Seconds(0)},
      {state, Bytes(0)});
}

/// Prints "35 min", "5.2 h".
std::string print_duration(Seconds time);

/// Returns "v100-16g spot us-west1-b".
std::string name_of(const Offer& offer);

}  // namespace motley::elastic
