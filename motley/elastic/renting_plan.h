#pragma once

#include <cstddef>
#include <vector>

#include "motley/base/units.h"
#include "motley/elastic/age_hazard.h"

namespace motley::elastic {

enum class Holding { kNothing, kSpot, kOnDemand };

/// Prices of renting, and the cost of a change.
struct RentingTerms {
  double spot_per_hour = 0, on_demand_per_hour = 0;  ///< of all machines of the job
  Seconds change_over;                               ///< from renting until the job trains; paid
  Seconds tick{300};  ///< shortest time between changes; the grid is no finer
  bool operator==(const RentingTerms&) const = default;
};

/// Tells whether a job may hold `next` until it can change again, and still be in time on demand.
/// `slack`: time to the deadline less that of the remaining work on demand. Continued training
/// keeps the slack until the next tick, anything else uses it up.
bool is_safe(const RentingTerms& terms, Seconds slack, Holding now, Holding next);

/// Assumed revocations of a zone's spot machines, by time since they came, and their return rate.
struct SpotBelief {
  AgeHazard hazard;
  double returns_per_second = 0;
};

/// Finds what to rent at least expected cost for a job with a deadline: dynamic programming over
/// remaining work (seconds of training), slack (time to the deadline less that) and the rented
/// machines, with spot machines as a Markov chain over pieces of age.
///
///   training: work falls, slack stays. Waiting, changing over: slack falls.
///
/// The slack for a change-over to on demand is never given away, so no plan is late. The grid has
/// at most `kMostCells` cells of work and of slack; less slack than a cell is interpolated.
/// O(kMostCells^2 pieces) once, then O(1) per question. Same problem as Wu et al., "Can't be late"
/// (NSDI 2024), who have a rule for it.
class RentingPlan {
 public:
  static constexpr std::size_t kMostCells = 160;

  /// `work` > 0 and `slack` > 0: the largest that `best` and `cost` will get.
  RentingPlan(const RentingTerms& terms, const SpotBelief& belief, Seconds work, Seconds slack);

  struct Place {
    Seconds work, slack;
    Holding holding = Holding::kNothing;
    bool is_there = false;  ///< spot machines are available
    Seconds age;            ///< since when
  };
  Holding best(const Place& place) const;
  double cost(const Place& place) const;

 private:
  /// Costs by slack cell for one amount of work: `idle` and `on_demand` without spot machines (0)
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
  double spot_ = 0, on_demand_ = 0;   // cost per cell
  std::size_t slacks_ = 0;            // cells of slack
  std::vector<double> gone_, older_;  // of a piece, within a cell
  double returns_ = 0;
  std::vector<Row> rows_;  // by work
};

}  // namespace motley::elastic
