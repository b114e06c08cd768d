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

/// Decides for an elastic job, whose machines come and go one by one while others train, what to
/// rent so that it is done at its deadline at least cost: by RentingPlan for what is missing. Emits
/// policy::Rent, or policy::Tell where it goes on with what there is, each with time and cost left
/// of all that could be done. Told of losses, notices and arrivals of machines, of prices by kind,
/// zone and spot (policy::kNotOffered: none is to be had), of steps (numbers from 0, seconds of the
/// slowest device), it decides:
///
/// * Of as many machines as it began with, those that are lost or about to be are missing.
/// * Before slack (time to the deadline less that of the work left with one's own and on-demand
///   machines alone) is too little for those to start (is_safe), as many as are in time are asked
///   for. So it is late only where these could not have been in time from the start, or none comes.
/// * Else, of each spot offer, RentingPlan decides over the work that those who are there leave
///   undone, its slack, and what a second of the missing costs, less what it saves of theirs
///   (docs/algorithms.md, "While a job trains"); where that is below 0 they are asked for at once.
/// * What would end above the budget is not asked for.
/// * Where machines may be given back (Rent of -1): one without which the rest costs less, by more
///   than two starts of it, if the others are in time with two starts to spare and outlive a loss.
///   An arrival of one that is there says that it could not be given back.
///
/// Speeds of sets that were not trained with are as believed, in proportion to the nearest one that
/// was. Who has not come within twice its start is no more waited for, its offer not asked for
/// `kAgain`. Unlike regions are not in one job. Lifetimes are learned.
class JobRenting : public policy::Policy {
 public:
  static constexpr Seconds kAgain{600};

  JobRenting(RentingJob job, Lifetimes lifetimes);
  std::string_view name() const override;  ///< "market"; with another's rule that one's
  std::vector<policy::Choice> observe(const policy::Observation& seen) override;
  Json state() const override;
  Result<void> restore(const Json& state, const std::string& where) override;

  double paid() const { return paid_; }  ///< from when machines are asked for until they are gone
  bool is_spent() const { return job_.budget && paid_ >= *job_.budget; }
  /// If nothing changed: time and cost left; none: nobody knows yet.
  std::optional<LeftToDo> left() const { return left_with({}); }
  const RentingJob& job() const { return job_; }
  const Lifetimes& lifetimes() const { return lifetimes_; }
  double price_of(std::size_t offer) const { return offers_[offer].price; }
  bool is_there(std::size_t machine) const { return machines_[machine].place == Place::kThere; }
  /// Those that the last choices ask for, or give back.
  std::vector<const JobMachine*> asked_for(const policy::Rent& rent) const;

 private:
  using Choices = std::vector<policy::Choice>;
  enum class Place { kAbsent, kAsked, kThere };
  struct MachineState {
    Place place = Place::kAbsent;
    Seconds since;                 ///< when that began
    std::optional<Seconds> until;  ///< when it will be gone, if that was told
    int lives = 0;                 ///< how often it was there: names its life
    bool is_kept = false;          ///< it cannot be given back
  };
  struct OfferNow {
    double price = 0;  ///< an hour; the last one where it is not to be had
    bool is_there = true;
    std::optional<Seconds> again = {};  ///< not to be asked for before
    SpotGaps gaps = {};
  };
  struct Choosing;
  struct Option;  // both job_renting_choice.cc
  struct Rented {
    std::vector<std::pair<std::size_t, int>> what;  ///< offers, how many machines more
    std::string why;
    std::optional<std::size_t> back = {};  ///< the machine that is given back
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

  // What could be done (job_renting_choice.cc).
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
  std::map<Machines, double> measured_;  // seconds of a step by these
  int settling_ = 2;                     // steps since machines changed
  std::size_t target_ = 0;               // machines that it began with
  Seconds now_, looked_;
  std::int64_t done_ = 0;
  double paid_ = 0;
  bool was_safe_ = false;   // on demand alone could have been in time
  bool is_forced_ = false;  // it has gone on demand
  double told_step_ = 0;    // a step, when it last said so,
  Machines told_;           // and by whom
};

}  // namespace motley::elastic
