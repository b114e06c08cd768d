#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/elastic/job_standing.h"
#include "motley/elastic/lifetimes.h"
#include "motley/elastic/renting_choice.h"
#include "motley/elastic/renting_job.h"
#include "motley/policy/policy.h"

namespace motley::elastic {

/// Decides what an elastic job rents to meet its deadline at least cost, by RentingPlan for what is
/// missing. Machines come and go one by one while others train. Emits policy::Rent, or policy::Tell
/// where it continues as it is, each with remaining time and cost of all alternatives. It observes
/// losses, notices and arrivals of machines, prices by kind, zone and spot (policy::kNotOffered:
/// not available), and steps (numbers from 0, seconds of the slowest device):
///
/// * Missing are the lost and leaving machines, compared with the initial number.
/// * Slack is the time to the deadline less the time of the remaining work on own and on-demand
///   machines alone. Before it is too small for those to start (is_safe), enough of them are
///   requested. So the job is late only where these could never have been in time, or none comes.
/// * Else RentingPlan decides for each spot offer over the work that present machines leave undone,
///   its slack, and the price of a second of the missing ones less the savings on the others
///   (docs/algorithms.md, "While a job trains"). Where that is negative they are requested at once.
/// * Nothing is requested that would exceed the budget.
/// * Where machines may be given back (Rent of -1), one is without which the rest costs less, by
///   more than two of its starts, if the others are in time with two starts to spare and survive a
///   loss. An arrival of a present machine means that it could not be given back.
///
/// Unmeasured sets of machines have their predicted speed, scaled as at the nearest measured set. A
/// machine that has not come within twice its start is given up, and its offer is not requested for
/// `kAgain`. A job stays in one region. Lifetimes are learned.
class JobRenting : public policy::Policy {
 public:
  static constexpr Seconds kAgain{600};

  JobRenting(RentingJob job, Lifetimes lifetimes);
  std::string_view name() const override;  ///< "market"; with another tool's rule, its name
  std::vector<policy::Choice> observe(const policy::Observation& seen) override;
  Json state() const override;
  Result<void> restore(const Json& state, const std::string& where) override;

  double paid() const { return standing_.paid; }
  bool is_spent() const { return job().budget && paid() >= *job().budget; }
  const RentingJob& job() const { return standing_.job; }
  const Lifetimes& lifetimes() const { return standing_.lifetimes; }
  double price_of(std::size_t offer) const { return standing_.offers[offer].price; }
  bool is_there(std::size_t machine) const { return standing_.machines[machine].is_there(); }
  /// Returns the machines that the last choices request or give back.
  std::vector<const JobMachine*> asked_for(const policy::Rent& rent) const;
  static void fields(auto& it, auto& field) {
    auto& at = it.standing_;
    field("now", at.now)("looked", it.looked_)("done", at.done)("paid", at.paid);
    field("target", at.target)("settling", at.settling)("was_safe", it.change_.was_safe);
    field("is_forced", it.change_.is_forced)("told_step", it.told_step_)("told", it.told_);
    field("machines", at.machines)("offers", at.offers)("measured", at.measured);
  }

 private:
  using Choices = std::vector<policy::Choice>;

  Choices see(const policy::StepSeen& seen);
  Choices see(const policy::LossSeen& seen);
  Choices see(const policy::NoticeSeen& seen);
  Choices see(const policy::ArrivalSeen& seen);
  Choices see(const policy::PriceSeen& seen);
  Choices see(const auto&) { return {}; }

  Choices look();
  Choices decide(const std::string& subject, const std::string& event);
  Choices carry_out(const std::string& subject, const std::string& event, const Rented& rented);
  std::string tell(const std::string& event, const Rented& rented,
                   const std::vector<policy::Alternative>& alternatives) const;
  Result<void> check_restored(const JobRenting& other, const std::string& where) const;

  JobStanding standing_;
  Seconds looked_;
  OnDemandSwitch change_;
  double told_step_ = 0;  // step time at the last decision
  Machines told_;         // and its machines
};

}  // namespace motley::elastic
