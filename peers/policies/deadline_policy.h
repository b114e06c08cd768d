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

/// A job with a deadline that rents machines of one kind in one zone, spot or on demand.
struct DeadlineJob {
  std::string kind, zone;
  int machines = 1;
  std::int64_t steps = 0;  ///< of the whole training
  Seconds step;            ///< per step, with all machines
  Seconds deadline;        ///< since the run began
  /// Prices are for all machines; prices arrive at least every tick.
  elastic::RentingTerms terms;
};

/// Rents for a job with a deadline: emits policy::Rent. Observes PriceSeen of spot machines at
/// least every tick (policy::kNotOffered: none), LossSeen when an own machine is revoked, and
/// StepSeen with progress; ignores others. Its state is what it rented: the loss of one spot
/// machine returns the others of its gang.
///
/// All policies are safe: when the slack (time to the deadline less time of work) is one
/// change-over and a tick, they switch to on demand and stay there. So they are late only where on
/// demand from the start is late.
class DeadlinePolicy : public policy::Policy {
 public:
  std::string_view name() const override { return name_; }
  std::vector<policy::Choice> observe(const policy::Observation& seen) override;
  Json state() const override;
  Result<void> restore(const Json& state, const std::string& where) override;

 protected:
  struct JobState {
    Seconds now, work, slack;  ///< work: the time it takes
    bool is_there = false;     ///< spot machines are available
    Seconds since;             ///< since this changed
    Holding holding = Holding::kNothing;
  };
  DeadlinePolicy(std::string name, DeadlineJob job) : name_(std::move(name)), job_(job) {}
  /// Returns what to rent where nothing forces it; `kSpot` only if available.
  virtual Holding wanted(const JobState& job_state) = 0;
  /// Learns that spot machines became available or unavailable.
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
  bool is_told_ = false;  // some price was seen
  bool is_forced_ = false;
};

/// Makes one by name: "on-demand" (from the start), "greedy" (spot while available, else wait),
/// "uniform" (Uniform Progress) and "motley" (RentingPlan over `lifetimes` of the kind and zone,
/// which go on learning). Usage error `elastic.policy` with a suggestion.
Result<std::unique_ptr<policy::Policy>> make_deadline_policy(
    const std::string& name, const DeadlineJob& job,
    const elastic::Lifetimes& lifetimes = elastic::Lifetimes());
std::vector<std::string> deadline_policies();

}  // namespace motley::peers
