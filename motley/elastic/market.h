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

/// Machines of one kind in one zone, for rent: spot or on demand.
struct Offer {
  std::string kind;  ///< of its devices, as in a cluster file
  int devices = 1;   ///< of a machine
  std::string zone;
  std::string region;  ///< machines of unlike regions are never in one job
  bool is_spot = false;
  double price_per_hour = 0;
  int most = 4;  ///< that one job may rent
  StartTimes start;
  Seconds notice{0};                      ///< before a spot machine is taken back
  std::optional<Seconds> limit;           ///< age at which it is taken back in any case
  std::optional<double> losses_per_hour;  ///< whatever its age; none: by age, as lifetimes say
  std::optional<Seconds> step;  ///< of one such machine alone with the servers: [server] only
  std::optional<Bytes> memory;  ///< of a device; none: the kind's
  int threads = 1;              ///< of a CPU device
  double speed = 1;             ///< of a CPU device: share of a core
  bool operator==(const Offer&) const = default;
};

/// Parameter servers, of a job whose workers are asynchronous (server_queue.h).
struct ServerOffer {
  Seconds service;  ///< of a step
  double price_per_hour = 0;
  int most = 2;
  bool operator==(const ServerOffer&) const = default;
};

/// What can be rented where, for how much (docs/formats/market.md).
struct Market {
  std::string name;
  std::string lifetimes;  ///< file of motley.lifetimes/1, beside this one; "": the usual ones
  BytesPerSecond bandwidth{1.25e9};  ///< between machines of a region
  Seconds latency{100e-6};
  Seconds checkpoint_fixed{4};  ///< of one, beside what its bytes take
  BytesPerSecond checkpoint_rate{50e6};
  std::vector<Offer> offers;
  std::optional<ServerOffer> server;
  bool operator==(const Market&) const = default;
};

/// TOML. Errors "NAME:LINE: ..." (usage): `market.unknown-key` with a suggestion, `.missing-key`
/// (an offer without a price is none), `.value`, `.schema`, `.parse`.
Result<Market> parse_market(std::string_view text, const std::string& name);
Result<Market> read_market(const std::string& path);
/// Canonical TOML; parse_market(print_market(m)) == m.
std::string print_market(const Market& market);

/// Of parameters and optimizer states so large.
inline Seconds checkpoint_time(const Market& market, Bytes state) {
  return estimate_checkpoint(
      {market.checkpoint_fixed, Seconds(1 / market.checkpoint_rate.value), Seconds(0)},
      {state, Bytes(0)});
}

/// "35 min", "5.2 h".
std::string print_duration(Seconds time);

/// "v100-16g spot us-west1-b".
std::string name_of(const Offer& offer);

}  // namespace motley::elastic
