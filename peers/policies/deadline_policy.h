#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "motley/elastic/lifetimes.h"
#include "motley/elastic/renting_plan.h"
#include "motley/policy/policy.h"

namespace motley::peers {

using elastic::Holding;

/// A job that must be done at a deadline, and where it may rent. All its machines are of one kind
/// in one zone, spot or on demand.
struct DeadlineJob {
  std::string kind, zone;
  int machines = 1;
  std::int64_t steps = 0;  ///< of the whole training
  Seconds step;            ///< of one, with all machines
  Seconds deadline;        ///< since the run began
  /// Prices are those of all machines; prices are told at least every tick.
  elastic::RentingTerms terms;
};

/// Rents for a job with a deadline: emits policy::Rent. It is told PriceSeen of the spot machines
/// at least every tick (policy::kNotOffered: there are none), LossSeen when one of its own is taken
/// back, StepSeen with what is done; other observations are ignored. What it rented is its state: a
/// loss of one machine gives the others of a spot gang back.
///
/// All policies are safe: with slack (time to the deadline less time of work) for one change-over
/// and a tick left, they go on demand and stay there. So they are late only where renting on demand
/// from the start is.
class DeadlinePolicy : public policy::Policy {
 public:
  std::string_view name() const override { return name_; }
  std::vector<policy::Choice> observe(const policy::Observation& seen) override;
  Json state() const override;
  Result<void> restore(const Json& state, const std::string& where) override;

 protected:
  /// Where the job is when it decides.
  struct JobState {
    Seconds now, work, slack;  ///< work: time that it takes
    bool is_there = false;     ///< spot machines
    Seconds since;             ///< when that began
    Holding holding = Holding::kNothing;
  };
  DeadlinePolicy(std::string name, DeadlineJob job) : name_(std::move(name)), job_(job) {}
  /// What to rent, where nothing forces it. `kSpot` only if they are there.
  virtual Holding wanted(const JobState& job_state) = 0;
  /// Spot machines have begun, or ceased, to be there.
  virtual void learn(const JobState&) {}
  virtual Json learned() const;
  virtual Result<void> restore_learned(const Json& learned, const std::string& where);
  const DeadlineJob& job() const { return job_; }

 private:
  std::vector<policy::Choice> decide();
  void see_price(const policy::PriceSeen& seen);

  std::string name_;
  DeadlineJob job_;
  JobState job_state_{};
  std::int64_t done_ = 0;
  bool is_told_ = false;  // of prices, once
  bool is_forced_ = false;
};

/// By name: "on-demand" (from the start), "greedy" (spot while there is any, else wait), "uniform"
/// (Uniform Progress) and "motley" (RentingPlan over what `lifetimes` say of the kind and zone,
/// learned on). Usage error `elastic.policy` with a suggestion.
Result<std::unique_ptr<policy::Policy>> make_deadline_policy(
    const std::string& name, const DeadlineJob& job,
    const elastic::Lifetimes& lifetimes = elastic::Lifetimes());
std::vector<std::string> deadline_policies();

}  // namespace motley::peers
