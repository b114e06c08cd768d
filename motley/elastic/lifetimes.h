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

/// A machine that is or was rented. Times are on one clock, whatever it is.
struct RentedMachine {
  std::string kind, zone;
  Seconds start;
  std::optional<Seconds> end;  ///< none: it is there
  bool was_lost = false;       ///< it was taken back; else given back, or reached the limit
  bool operator==(const RentedMachine&) const = default;
};

/// How much machines of a kind, a zone and a launch have in common, chosen on half of the zones of
/// a set of 152 (docs/models.md).
struct LifetimeOptions {
  double kind_spread = 0.3;  ///< log-normal factor of a kind: deviation of its logarithm
  double zone_shape = 1;     ///< gamma factor of a kind in a zone, of mean 1: small is unlike
  double launch_shape = 20;  ///< the same of machines launched together
  Seconds together{600};     ///< launches so soon after each other are one
  /// Ages at which everybody is taken back; a loss shortly before it counts as that.
  Seconds limit = kUsualLimit;
  Seconds near_limit{360};
};

class LifetimeForecast;

/// Lifetimes of spot machines, learned while they are seen. Losses per second of a machine of age
/// a are
///
///   h(kind, a) c(a) f(kind) f(kind, zone) f(launch)
///
/// with the hazard h of other places and times (age_hazard.h), corrections c by age, and factors
/// that machines share: of a kind, of a zone, and of those that were launched together, which is
/// why losses come in crowds. Given the other levels each is integrated exactly: launches in closed
/// form (gamma), zones and kinds on grids; c takes the expected factors (an EM step), gamma again.
/// Who is still there, and who reached the limit, counts by the time it was there.
/// Kalbfleisch and Prentice, The Statistical Analysis of Failure Time Data, chapters 2 and 10.
class Lifetimes {
 public:
  Lifetimes() = default;
  explicit Lifetimes(LifetimeOptions options) : options_(options) {}

  /// Machines are told by names that are not used again.
  void begin(const std::string& name, const std::string& kind, const std::string& zone,
             Seconds start);
  /// Unknown names and machines that have ended are ignored: notices come twice.
  void end_lost(const std::string& name, Seconds at);
  void end_given_back(const std::string& name, Seconds at);
  void add(const std::string& name, const RentedMachine& machine) { machines_[name] = machine; }
  const std::map<std::string, RentedMachine>& machines() const { return machines_; }
  const LifetimeOptions& options() const { return options_; }

  /// What is known at a time that no event so far is behind. O(machines pieces + zones 600).
  LifetimeForecast forecast(Seconds now) const;

  /// {"schema": "motley.lifetimes/1", "machines": [...]}; the options are not in it.
  Json to_json() const;
  /// Usage errors: another schema, keys that are missing or unknown, machines that end before they
  /// start.
  static Result<Lifetimes> from_json(const Json& json, const std::string& where,
                                     LifetimeOptions options = {});

 private:
  LifetimeOptions options_;
  std::map<std::string, RentedMachine> machines_;
};

/// What `Lifetimes` say at one time. Given a factor m of kind and zone, the losses of a launch are
/// gamma: P(all these ages are survived) is a mean over m of closed forms.
class LifetimeForecast {
 public:
  /// That a machine which is there now is taken back within the horizon: 1 where that reaches the
  /// limit.
  double gone_within(const RentedMachine& machine, Seconds horizon) const;
  /// The same of one that starts now, alone.
  double gone_within(const std::string& kind, const std::string& zone, Seconds horizon) const;
  /// Losses per second by age of a machine that is there, as expected now.
  AgeHazard hazard_of(const RentedMachine& machine) const;
  AgeHazard hazard_of(const std::string& kind, const std::string& zone) const;
  /// Draws of the factor that all machines of a kind in a zone share: quantiles at the middles of n
  /// equal parts, ascending. For replays in which they share it.
  std::vector<double> factors(const std::string& kind, const std::string& zone,
                              std::size_t n) const;
  /// By age, without any factor.
  AgeHazard common(const std::string& kind) const;
  const LifetimeOptions& options() const;

  struct Learned;
  explicit LifetimeForecast(std::shared_ptr<const Learned> learned)
      : learned_(std::move(learned)) {}

 private:
  std::shared_ptr<const Learned> learned_;  // a forecast is a value that is passed around
};

}  // namespace motley::elastic
