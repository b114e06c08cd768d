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

struct RentRehearsal {
  MarketQuestion question;
  std::vector<elastic::JobMachine> machines;
  RentChoices choices;
};

struct RehearsedRent {
  std::string policy;
  double paid = 0;
  Seconds spare;  ///< until the deadline; negative: late
  int asked = 0;
  int came = 0;
  int lost = 0;
  int returned = 0;  ///< returned before the end
};

std::set<std::string> absent_devices(const std::vector<elastic::JobMachine>& machines);

/// Lives of rented machines. A requested machine arrives after its offer's cold start, unless it is
/// absent then by the conditions. It is taken back at an age drawn from market and lifetimes
/// (elastic/spot_risk.h), or when an absence begins, after the offer's notice. The same seed gives
/// the same lives under every policy.
class RehearsedMarket : public MachineMarket {
 public:
  RehearsedMarket(const elastic::JobRenting& policy, const simulate::Conditions& conditions);

  /// The conditions' absences of devices that are not rented.
  const std::vector<simulate::Absence>& other_absences() const { return others_; }

  void ask(const std::vector<const elastic::JobMachine*>& machines, Seconds at) override;
  void come(std::size_t machine, Seconds at) override;
  void go(std::size_t machine, Went went) override;

  /// Removes and returns devices that were returned, and the events of the others.
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
  std::vector<double> factors_;
  std::vector<Spans> away_;           // by machine, from the conditions, in order of beginning
  std::vector<std::uint32_t> lives_;  // lives begun, by machine
  std::vector<Seconds> until_;        // end of the current life, by machine; the earliest return
  std::vector<simulate::Absence> others_;
  std::vector<AvailabilityTrace::Event> events_;
  std::vector<std::string> left_;
  RehearsedRent rent_;
};

}  // namespace motley::control
