#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/elastic/age_hazard.h"

namespace motley::elastic {

/// A machine that is or was rented. All times are on one clock.
struct RentedMachine {
  std::string kind, zone;
  Seconds start;
  std::optional<Seconds> end;  ///< none: it is present
  bool was_lost = false;       ///< revoked; else given back, or at the limit
  bool operator==(const RentedMachine&) const = default;
};

/// What machines of a kind, zone and launch share; from half of 152 zones (docs/models.md).
struct LifetimeOptions {
  double kind_spread = 0.3;  ///< log-normal factor of a kind: deviation of its logarithm
  double zone_shape = 1;     ///< gamma factor of a kind in a zone, of mean 1; small: diverse
  double launch_shape = 20;  ///< the same for machines launched together
  Seconds together{600};     ///< launches at most so far apart are one
  /// Age at which every machine is revoked; a loss shortly before it counts as that.
  Seconds limit = kUsualLimit;
  Seconds near_limit{360};
};

class LifetimeForecast;

/// Learns lifetimes of spot machines from observations. Losses per second of a machine of age a are
///
///   h(kind, a) c(a) f(kind) f(kind, zone) f(launch)
///
/// with the hazard h of other places and times (age_hazard.h), corrections c by age, and shared
/// factors: of a kind, of a zone, and of machines launched together, so losses come in crowds.
/// Given the other levels each is integrated exactly: launches in closed form (gamma), zones and
/// kinds on grids. c takes the expected factors (an EM step), with a gamma prior again. Machines
/// still present, or at the limit, count by their time. Kalbfleisch and Prentice, The Statistical
/// Analysis of Failure Time Data, chapters 2 and 10.
class Lifetimes {
 public:
  Lifetimes() = default;
  explicit Lifetimes(LifetimeOptions options) : options_(options) {}

  /// Names identify machines and are not reused.
  void begin(const std::string& name, const std::string& kind, const std::string& zone,
             Seconds start);
  /// Ignores unknown and ended machines: notices come twice.
  void end_lost(const std::string& name, Seconds at);
  void end_given_back(const std::string& name, Seconds at);
  void add(const std::string& name, const RentedMachine& machine) { machines_[name] = machine; }
  const std::map<std::string, RentedMachine>& machines() const { return machines_; }
  const LifetimeOptions& options() const { return options_; }

  /// Forecasts from `now`, which no event so far is after. O(machines pieces + zones 600).
  LifetimeForecast forecast(Seconds now) const;

  /// Returns {"schema": "motley.lifetimes/1", "machines": [...]}, without the options.
  Json to_json() const;
  /// Usage errors: another schema, missing or unknown keys, machines that end before they start.
  static Result<Lifetimes> from_json(const Json& json, const std::string& where,
                                     LifetimeOptions options = {});

 private:
  LifetimeOptions options_;
  std::map<std::string, RentedMachine> machines_;
};

/// A forecast at one time. Given a factor m of kind and zone, a launch's losses are gamma: the
/// chance that all these ages are survived is a mean over m of closed forms.
class LifetimeForecast {
 public:
  /// Returns the chance that a present machine is revoked within the horizon; 1 beyond the limit.
  double gone_within(const RentedMachine& machine, Seconds horizon) const;
  /// Returns the same for a machine that starts now, alone.
  double gone_within(const std::string& kind, const std::string& zone, Seconds horizon) const;
  /// Returns the expected losses per second by age of a present machine.
  AgeHazard hazard_of(const RentedMachine& machine) const;
  AgeHazard hazard_of(const std::string& kind, const std::string& zone) const;
  /// Draws the factor that all machines of a kind in a zone share: quantiles at the middles of n
  /// equal parts, ascending. For replays in which they share it.
  std::vector<double> factors(const std::string& kind, const std::string& zone,
                              std::size_t n) const;
  /// Returns the hazard by age, without factors.
  AgeHazard common(const std::string& kind) const;
  const LifetimeOptions& options() const;

  struct Learned;
  explicit LifetimeForecast(std::shared_ptr<const Learned> learned)
      : learned_(std::move(learned)) {}

 private:
  std::shared_ptr<const Learned> learned_;  // a forecast is passed by value
};

}  // namespace motley::elastic
