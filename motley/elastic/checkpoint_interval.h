#pragma once

#include <vector>

#include "motley/base/units.h"
#include "motley/elastic/age_hazard.h"

namespace motley::elastic {

struct AgedHazard {
  AgeHazard hazard;
  Seconds age;
};

/// Returns the loss rate of all machines together, by time from now. O(machines pieces^2).
AgeHazard hazard_ahead(const std::vector<AgedHazard>& machines);

/// Returns the rollback rate of two machines that hold each other's state: both are lost within
/// `recovery`, the time to restore a copy: 2 h1 h2 recovery.
AgeHazard mirrored(const AgeHazard& one, const AgeHazard& other, Seconds recovery);

struct SavingCosts {
  Seconds save;       ///< of one checkpoint; > 0
  Seconds notice{0};  ///< warning time before a revocation; a checkpoint may fit in it
  /// Losses per second without notice, whatever kind, zone and age: a tenth of a spot machine's. It
  /// keeps intervals from growing to hours, which would save little and risk much.
  double background = 1e-6;
};

/// Returns the work until the next checkpoint that minimizes the wasted time per second worked:
///   (save + integral of u (hazard(u) + background) du from 0 to tau) / tau,
/// where u is the work that a loss would take back. The best tau within a piece of constant hazard
/// is in closed form; the best piece wins. At constant hazard it is Young's sqrt(2 save / hazard)
/// (CACM 1974); where the hazard falls with age, intervals grow. If a checkpoint fits in the
/// notice, only the background counts. Infinity where nothing is ever lost. `until`: the end in any
/// case (the provider's limit); the last checkpoint finishes by then.
Seconds checkpoint_interval(const AgeHazard& ahead, Seconds until, const SavingCosts& costs);

}  // namespace motley::elastic
