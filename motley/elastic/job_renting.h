#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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

/// Decides for an elastic job, whose machines come and go one by one while the others train, what
/// to rent so that it is done at its deadline at least cost: the renting plan of "motley"
/// (deadline_policy.h) for what is missing. Emits policy::Rent, or policy::Tell where it goes on
/// with what there is, each with time and cost left of all that could be done.
///
/// Told of losses, notices and arrivals of machines, of prices by kind, zone and spot (kNotOffered:
/// none is to be had), of steps (numbers from 0, seconds of the slowest device). After each of them
/// but quick steps it decides:
///
/// * Of as many machines as it began with, those that are lost or about to be are missing.
/// * Slack: time to the deadline less that of the work left with one's own and on-demand machines
///   alone. Before it is too little for those to start (is_safe), as many as are in time are asked
///   for. So it is late only where these could not have been in time from the start, or no machine
///   comes.
/// * Else, of each spot offer: if all that is there, at v0 steps/s and c0 a second, trains on until
///   the deadline, the missing ones at v1 - v0 more have (N - v0 T) / (v1 - v0) seconds of the N
///   steps in T seconds to do. A second of theirs at c brings forward the end, so that it costs
///   c - c0 (v1 - v0) / v0 (v0 > 0): where that is below 0 it pays to ask for them at once, else
///   RentingPlan decides over that work, its slack and those costs.
/// * What would end above the budget is not asked for.
///
/// A machine that was asked for and has not come within twice its start is no more waited for, and
/// its offer not asked for `kAgain`. Machines of unlike regions are not in one job. Nothing is
/// given back before the end. Lifetimes are learned from what it is told.
class JobRenting : public policy::Policy {
 public:
  static constexpr Seconds kAgain{600};

  JobRenting(RentingJob job, Lifetimes lifetimes);
  std::string_view name() const override { return "market"; }
  std::vector<policy::Choice> observe(const policy::Observation& seen) override;
  Json state() const override;
  Result<void> restore(const Json& state, const std::string& where) override;

  /// By the last observation. Machines are paid for from when they are asked for, or from the
  /// beginning, until they are gone.
  double paid() const { return paid_; }
  bool is_spent() const { return job_.budget && paid_ >= *job_.budget; }
  /// Where it would say that nothing changed: time and cost left; none: nobody knows yet.
  std::optional<LeftToDo> left() const { return left_with({}); }
  const RentingJob& job() const { return job_; }
  const Lifetimes& lifetimes() const { return lifetimes_; }
  double price_of(std::size_t offer) const { return offers_[offer].price; }
  bool is_there(std::size_t machine) const { return machines_[machine].place == Place::kThere; }
  /// Those that the last choices ask for.
  std::vector<const JobMachine*> asked_for(const policy::Rent& rent) const;

 private:
  enum class Place { kAbsent, kAsked, kThere };
  struct Standing {
    Place place = Place::kAbsent;
    Seconds since;                 ///< when that began
    std::optional<Seconds> until;  ///< when it will be gone, if that was told
    int lives = 0;                 ///< how often it was there: names its life
  };
  struct OfferNow {
    double price = 0;  ///< an hour; the last one where it is not to be had
    bool is_there = true;
    std::optional<Seconds> again = {};  ///< not to be asked for before
    SpotGaps gaps = {};
  };
  struct Choosing;  // job_renting_choice.cc
  struct Option;    // likewise
  struct Rented {
    std::vector<std::pair<std::size_t, int>> what;  ///< offers, and how many machines more
    std::string why;
  };

  std::vector<policy::Choice> see(const policy::StepSeen& seen);
  std::vector<policy::Choice> see(const policy::LossSeen& seen);
  std::vector<policy::Choice> see(const policy::NoticeSeen& seen);
  std::vector<policy::Choice> see(const policy::ArrivalSeen& seen);
  std::vector<policy::Choice> see(const policy::PriceSeen& seen);
  std::vector<policy::Choice> see(const policy::NoiseSeen&) { return {}; }
  std::vector<policy::Choice> see(const policy::RefusalSeen&) { return {}; }

  Result<void> restore_lists(JsonObject& object);
  std::optional<std::size_t> find_machine(const std::string& device) const;
  const Offer* offer_of(std::size_t machine) const;
  std::string life_of(std::size_t machine) const;
  void advance(Seconds at);
  void begin_life(std::size_t machine);
  void measure(Seconds took);
  std::optional<std::string> give_up_waiting();
  std::vector<policy::Choice> look();
  std::vector<policy::Choice> decide(const std::string& subject, const std::string& event);
  std::vector<policy::Choice> carry_out(const std::string& subject, const std::string& event,
                                        const Rented& rented);

  // What could be done (job_renting_choice.cc).
  double speed_with(double sum) const;
  bool stays(std::size_t machine) const;
  bool is_offered(std::size_t offer) const;
  std::vector<std::size_t> free_of(std::size_t offer, std::size_t most) const;
  std::optional<LeftToDo> left_with(const std::vector<std::size_t>& asked) const;
  std::vector<policy::Alternative> alternatives() const;
  void price(const Choosing& now, Option& option) const;
  std::vector<Option> find_options(const Choosing& now) const;
  Rented choose();
  bool must_go_on_demand(const Choosing& now);
  Rented choose_on_demand(const Choosing& now) const;
  Rented choose_missing(const Choosing& now) const;
  Rented choose_by_plan(const Choosing& now, const std::vector<Option>& options,
                        const Option& on_demand) const;
  RentingPlan make_plan(const Option& spot, const Option& on_demand,
                        const RentingPlan::Place& place) const;

  RentingJob job_;
  Lifetimes lifetimes_;
  std::vector<Standing> machines_;
  std::vector<OfferNow> offers_;
  std::map<double, double> measured_;  // seconds of a step, by the sum of speeds
  int settling_ = 2;                   // steps since machines changed
  std::size_t target_ = 0;             // machines that it began with
  Seconds now_, looked_;
  std::int64_t done_ = 0;
  double paid_ = 0;
  bool was_safe_ = false;                // on demand alone could have been in time
  bool is_forced_ = false;               // it has gone on demand
  double told_step_ = 0, told_sum_ = 0;  // a step, and the sum of speeds, when it last said so
};

}  // namespace motley::elastic
