#pragma once

#include <cstddef>
#include <vector>

#include "motley/base/units.h"
#include "motley/elastic/age_hazard.h"

namespace motley::elastic {

/// What a job rents.
enum class Holding { kNothing, kSpot, kOnDemand };

/// What one way of renting costs, and what it takes to change it.
struct RentingTerms {
  double spot_per_hour = 0, on_demand_per_hour = 0;  ///< of all machines of the job
  Seconds change_over;                               ///< from renting until the job trains; paid
  Seconds tick{300};  ///< how often it may change: no finer grid is made
  bool operator==(const RentingTerms&) const = default;
};

/// May a job hold `next` from `now` on until it can change again, and be in time on demand all the
/// same? `slack`: time to the deadline less that of the work left on demand. What goes on to train
/// keeps the slack until the next tick, anything else uses it up.
bool is_safe(const RentingTerms& terms, Seconds slack, Holding now, Holding next);

/// What is believed of spot machines in a zone: how they are taken back by the time since there
/// have been any, and how soon there are some again.
struct SpotBelief {
  AgeHazard hazard;
  double returns_per_second = 0;
};

/// What to rent at least expected cost, if the job must be done at a deadline: dynamic programming
/// over work left (seconds of training), slack (what is left until the deadline less that) and what
/// is rented, with spot machines as a Markov chain over pieces of age.
///
///   training: work falls, slack stays. Waiting, changing over: slack falls.
///
/// On demand, slack that a change-over needs is never given away, so no plan is ever late. The grid
/// has at most `kMostCells` cells of work and as many of slack; less slack than a cell is
/// interpolated. O(kMostCells^2 pieces) once, then O(1) a question.
/// Same problem as Wu et al., "Can't be late" (NSDI 2024), who have a rule for it.
class RentingPlan {
 public:
  static constexpr std::size_t kMostCells = 160;

  /// `work` > 0 and `slack` > 0 are the most that is asked for.
  RentingPlan(const RentingTerms& terms, const SpotBelief& belief, Seconds work, Seconds slack);

  /// Where a job is.
  struct Place {
    Seconds work, slack;
    Holding holding = Holding::kNothing;
    bool is_there = false;  ///< are there spot machines?
    Seconds age;            ///< since when
  };
  Holding best(const Place& place) const;
  /// Expected cost from there.
  double cost(const Place& place) const;

 private:
  /// Costs by slack cell, for one amount of work: `idle` and `on_demand` without spot machines (0)
  /// and with them by piece of age (1 + piece), `spot` by piece.
  struct Row {
    std::vector<double> idle, on_demand, spot;
  };
  struct Options {
    double wait, spot, on_demand;
  };
  std::size_t state_of(const Place& place) const;
  double at(const std::vector<double>& of, std::size_t state, double slack) const;
  double after(const std::vector<double>& of, std::size_t state, double slack) const;
  Options options(const Row& row, std::size_t state, double slack, double work) const;
  void fill(const Row& below, double work, Row& row) const;

  RentingTerms terms_;
  SpotBelief belief_;
  double cell_ = 1;                   // seconds
  double change_ = 0;                 // cells
  double spot_ = 0, on_demand_ = 0;   // cost a cell
  std::size_t slacks_ = 0;            // cells of slack
  std::vector<double> gone_, older_;  // of a piece, within a cell
  double returns_ = 0;
  std::vector<Row> rows_;  // by work
};

}  // namespace motley::elastic
