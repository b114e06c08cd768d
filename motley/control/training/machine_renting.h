#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "motley/control/training/adapting.h"
#include "motley/elastic/job_renting.h"

namespace motley::control {

/// Where machines are requested and returned.
class MachineMarket {
 public:
  virtual ~MachineMarket() = default;
  /// Requests machines of one offer.
  virtual void ask(const std::vector<const elastic::JobMachine*>& machines, Seconds at) = 0;
  /// A machine of the job, by number, has arrived or is gone.
  enum class Went { kLost, kGivenBack };
  virtual void come(std::size_t machine, Seconds at) = 0;
  virtual void go(std::size_t machine, Went went) = 0;
};

/// Carries out elastic::JobRenting's decisions: reports machines by their devices' states, and logs
/// decisions with the job's. Times are the renting policy's.
class MachineRenting {
 public:
  /// All arguments outlive it.
  MachineRenting(elastic::JobRenting policy, MachineMarket& market, Adapting& adapting)
      : policy_(std::move(policy)), market_(market), adapting_(adapting) {}

  void observe(const policy::Observation& seen);
  /// A device will be gone.
  void hear(const std::string& device, Seconds at, Seconds left);
  void see_machines(Seconds at);

  const elastic::JobRenting& policy() const { return policy_; }
  elastic::JobRenting& policy() { return policy_; }
  bool is_spent() const { return policy_.is_spent(); }
  int asked() const { return asked_; }  ///< machines
  std::size_t decisions() const { return decisions_; }

 private:
  void carry_out(const policy::Choice& choice);
  void give_back(const policy::Rent& rent);

  elastic::JobRenting policy_;
  MachineMarket& market_;
  Adapting& adapting_;
  std::set<std::string> noticed_, leaving_;  // machines
  std::set<std::string> returning_;          // machines to return once they have left
  std::vector<std::string> kept_;            // devices of machines that cannot leave
  std::string said_;
  Seconds now_;
  int asked_ = 0;
  std::size_t decisions_ = 0;
};

}  // namespace motley::control
