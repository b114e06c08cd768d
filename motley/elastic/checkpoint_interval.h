#pragma once

#include <vector>

#include "motley/base/units.h"
#include "motley/elastic/age_hazard.h"

namespace motley::elastic {

/// A machine that a training stands on: its hazard by age, and how old it is.
struct AgedHazard {
  AgeHazard hazard;
  Seconds age;
};

/// Losses per second from now on, of any of the machines; ages of the result count from now.
/// O(machines pieces^2).
AgeHazard hazard_ahead(const std::vector<AgedHazard>& machines);

/// The rate of losses that cost a rollback where each machine's state is on another one, too: both
/// are lost within `recovery`, the time until a lost copy is made anew: 2 h1 h2 recovery.
AgeHazard mirrored(const AgeHazard& one, const AgeHazard& other, Seconds recovery);

/// What decides when to save.
struct SavingCosts {
  Seconds save;       ///< of one checkpoint; > 0
  Seconds notice{0};  ///< told before a machine is taken back; in it a checkpoint may fit
  /// Losses per second that come whatever a machine's kind, zone and age say, and without notice:
  /// hosts and people fail, too. A tenth of what the usual spot machine has. Where little has been
  /// seen it keeps intervals from growing to hours, which saves little and risks much.
  double background = 1e-6;
};

/// Work between now and the next checkpoint, such that least time is wasted per second worked:
/// minimises
///   (save + integral of u (hazard(u) + background) du from 0 to tau) / tau,
/// with u the work that a loss would take back. Within a piece of constant hazard the best tau is
/// in closed form; the best piece counts. At a constant hazard it is sqrt(2 save / hazard), Young's
/// (CACM 1974); where the hazard falls with age, intervals grow. If a checkpoint fits into the
/// notice, the background alone counts. Infinity where nothing is ever lost. `until`: when all ends
/// in any case (the provider's limit); the last checkpoint is then made so that it is finished by
/// then.
Seconds checkpoint_interval(const AgeHazard& ahead, Seconds until, const SavingCosts& costs);

}  // namespace motley::elastic
