#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "motley/control/presence.h"
#include "motley/control/rented_machines.h"
#include "motley/elastic/job_renting.h"
#include "motley/elastic/spot_risk.h"

namespace motley::control {

/// How a training that is rehearsed rents.
struct RentRehearsal {
  MarketQuestion question;
  std::vector<elastic::JobMachine> machines;
  RentChoices choices;
};

/// What a training that was rehearsed paid.
struct RehearsedRent {
  std::string policy;
  double paid = 0;
  Seconds spare;     ///< to the deadline; below 0: late
  int asked = 0;     ///< machines that were asked for
  int came = 0;      ///< of them
  int lost = 0;      ///< machines that were taken back
  int returned = 0;  ///< given back before the end
};

/// Devices of machines that are not there at the beginning.
std::set<std::string> absent_devices(const std::vector<elastic::JobMachine>& machines);

/// The market of a training that is rehearsed: who rents there (elastic::JobRenting, as in a run),
/// and what becomes of machines. One that is asked for comes after the cold start of its offer,
/// unless it is absent then, by the conditions; it is taken back at the age that is drawn for it by
/// what the market and lifetimes say (elastic/spot_risk.h), or where an absence begins, and a
/// notice tells that as long before as the offer says. Same seed, same lives, whoever rents.
class RehearsedMarket {
 public:
  RehearsedMarket(RentRehearsal rent, std::int64_t steps, Seconds step,
                  const simulate::Conditions& conditions);

  /// Of the conditions' absences those of devices that are not rented.
  const std::vector<simulate::Absence>& other_absences() const { return others_; }

  /// Tells who rents of a step, or of a machine by its first device (of its others nothing is
  /// heard); what is decided.
  std::vector<policy::Choice> observe(const policy::Observation& seen);
  /// What comes of it: events to be; machines that are to be given back.
  std::vector<Presence::Event> take_events() { return std::exchange(events_, {}); }
  std::vector<elastic::JobMachine> take_returns() { return std::exchange(returns_, {}); }

  const elastic::JobRenting& policy() const { return policy_; }
  RehearsedRent end(Seconds at) const;

 private:
  using Spans = std::vector<std::pair<Seconds, Seconds>>;
  void note(const policy::Observation& seen, std::size_t machine);
  void begin_life(std::size_t machine, Seconds at);
  void order(const policy::Rent& rent, Seconds at);
  void happen(std::size_t machine, Seconds at, Presence::What what);
  double draw(std::uint32_t one, std::uint32_t other, std::uint32_t what) const;

  elastic::JobRenting policy_;
  std::uint64_t seed_;
  std::vector<elastic::SpotRisk> risks_;  // by offer
  std::vector<double> factors_;           // likewise
  std::vector<Spans> away_;               // by machine: by the conditions, in order of beginning
  std::vector<std::uint32_t> lives_;      // by machine, begun
  std::vector<simulate::Absence> others_;
  std::vector<Presence::Event> events_;
  std::vector<elastic::JobMachine> returns_;
  RehearsedRent rent_;
};

}  // namespace motley::control
