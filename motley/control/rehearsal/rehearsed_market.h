#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "motley/control/training/availability_trace.h"
#include "motley/control/training/machine_renting.h"
#include "motley/control/training/rented_machines.h"
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

/// What becomes of machines in a rehearsal. One that is asked for comes after the cold start of its
/// offer, unless it is absent then, by the conditions; it is taken back at the age that is drawn
/// for it by what the market and lifetimes say (elastic/spot_risk.h), or where an absence begins,
/// and a notice tells that as long before as the offer says. Same seed, same lives, whoever rents.
class RehearsedMarket : public MachineMarket {
 public:
  /// `policy`: who rents there.
  RehearsedMarket(const elastic::JobRenting& policy, const simulate::Conditions& conditions);

  /// Of the conditions' absences those of devices that are not rented.
  const std::vector<simulate::Absence>& other_absences() const { return others_; }

  void ask(const std::vector<const elastic::JobMachine*>& machines, Seconds at) override;
  void come(std::size_t machine, Seconds at) override;
  void go(std::size_t machine, Went went) override;

  /// Devices that were given back: nothing more happens to them. Then what comes of the rest.
  std::vector<std::string> take_left() { return std::exchange(left_, {}); }
  std::vector<AvailabilityTrace::Event> take_events() { return std::exchange(events_, {}); }

  RehearsedRent end(const elastic::JobRenting& policy, Seconds at) const;

 private:
  using Spans = std::vector<std::pair<Seconds, Seconds>>;
  void begin_life(std::size_t machine, Seconds at);
  void happen(std::size_t machine, Seconds at, AvailabilityTrace::What what);
  double draw(std::uint32_t one, std::uint32_t other, std::uint32_t what) const;

  const elastic::RentingJob job_;
  std::uint64_t seed_;
  std::vector<elastic::SpotRisk> risks_;  // by offer
  std::vector<double> factors_;           // likewise
  std::vector<Spans> away_;               // by machine: by the conditions, in order of beginning
  std::vector<std::uint32_t> lives_;      // by machine, begun
  std::vector<Seconds> until_;            // by machine: when its life ends; it cannot come before
  std::vector<simulate::Absence> others_;
  std::vector<AvailabilityTrace::Event> events_;
  std::vector<std::string> left_;
  RehearsedRent rent_;
};

}  // namespace motley::control
