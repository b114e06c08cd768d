#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/elastic/lifetimes.h"
#include "motley/elastic/renting_job.h"
#include "motley/elastic/renting_plan.h"
#include "motley/elastic/spot_gaps.h"
#include "motley/elastic/time_left.h"
#include "motley/policy/policy.h"

namespace motley {
class JsonObject;
}

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

  double paid() const { return paid_; }  ///< from the request of a machine until it is gone
  bool is_spent() const { return job_.budget && paid_ >= *job_.budget; }
  /// Returns remaining time and cost without changes; none: unknown yet.
  std::optional<LeftToDo> left() const { return left_with({}); }
  const RentingJob& job() const { return job_; }
  const Lifetimes& lifetimes() const { return lifetimes_; }
  double price_of(std::size_t offer) const { return offers_[offer].price; }
  bool is_there(std::size_t machine) const { return machines_[machine].place == Place::kThere; }
  /// Returns the machines that the last choices request or give back.
  std::vector<const JobMachine*> asked_for(const policy::Rent& rent) const;

 private:
  using Choices = std::vector<policy::Choice>;
  enum class Place { kAbsent, kAsked, kThere };
  struct MachineState {
    Place place = Place::kAbsent;
    Seconds since;                 ///< since it is in this place
    std::optional<Seconds> until;  ///< departure, if announced
    int lives = 0;                 ///< arrivals so far, for the name of its life
    bool is_kept = false;          ///< it cannot be given back
  };
  struct OfferNow {
    double price = 0;  ///< per hour; the last one while unavailable
    bool is_there = true;
    std::optional<Seconds> again = {};  ///< earliest next request
    SpotGaps gaps = {};
  };
  struct Choosing;
  struct Option;  // both job_renting_choice.cc
  struct Rented {
    std::vector<std::pair<std::size_t, int>> what;  ///< offers, number of additional machines
    std::string why;
    std::optional<std::size_t> back = {};  ///< the machine given back
  };

  Choices see(const policy::StepSeen& seen);
  Choices see(const policy::LossSeen& seen);
  Choices see(const policy::NoticeSeen& seen);
  Choices see(const policy::ArrivalSeen& seen);
  Choices see(const policy::PriceSeen& seen);
  Choices see(const auto&) { return {}; }

  Result<void> restore_lists(JsonObject& object);
  std::optional<std::size_t> find_machine(const std::string& device) const;
  const Offer* offer_of(std::size_t machine) const;
  std::string life_of(std::size_t machine) const;
  void advance(Seconds at);
  void begin_life(std::size_t machine);
  void measure(Seconds took);
  std::optional<std::string> give_up_waiting();
  Choices look();
  Choices decide(const std::string& subject, const std::string& event);
  Choices carry_out(const std::string& subject, const std::string& event, const Rented& rented);

  // The alternatives (job_renting_choice.cc).
  double believed(const Machines& machines) const;
  double speed_with(const Machines& machines) const;
  bool stays(std::size_t machine) const;
  bool is_offered(std::size_t offer) const;
  std::vector<std::size_t> free_of(std::size_t offer, std::size_t most) const;
  Machines there() const;
  std::optional<LeftToDo> left_with(const std::vector<std::size_t>& asked) const;
  std::vector<policy::Alternative> alternatives() const;
  void price(const Choosing& now, Option& option) const;
  std::vector<Option> find_options(const Choosing& now) const;
  Choosing stand() const;
  Rented choose();
  bool must_go_on_demand(const Choosing& now);
  Rented choose_on_demand(const Choosing& now) const;
  Rented choose_missing(const Choosing& now) const;
  Rented choose_as_others(const Choosing& now) const;
  bool outlives_losses(const Machines& machines) const;
  Rented choose_back(const Choosing& now, std::string otherwise) const;
  Rented choose_by_plan(const Choosing& now, const std::vector<Option>& options,
                        const Option& on_demand) const;
  RentingPlan make_plan(const Option& spot, const Option& on_demand,
                        const RentingPlan::Place& place) const;

  RentingJob job_;
  Lifetimes lifetimes_;
  std::vector<MachineState> machines_;
  std::vector<OfferNow> offers_;
  std::map<Machines, double> measured_;  // step time by set of machines
  int settling_ = 2;                     // steps since the machines changed
  std::size_t target_ = 0;               // initial number of machines
  Seconds now_, looked_;
  std::int64_t done_ = 0;
  double paid_ = 0;
  bool was_safe_ = false;   // on demand alone could have been in time
  bool is_forced_ = false;  // it has switched to on demand
  double told_step_ = 0;    // step time at the last decision
  Machines told_;           // and its machines
};

}  // namespace motley::elastic
