#pragma once

#include <cstdint>
#include <functional>

#include "motley/control/planning/chosen_plan.h"
#include "motley/control/rehearsal/rehearsal.h"
#include "motley/control/training/adaptation.h"

namespace motley::control {

/// The batches that a training may choose.
struct BatchSpace {
  std::int64_t first = 1;            ///< progress is counted in steps of this batch
  std::int64_t least = 1, most = 1;  ///< samples per step
  std::function<Result<Candidate>(const policy::UseBatch&)> make;  ///< a plan
};
/// Returns the batches of an adaptation that chooses the batch.
BatchSpace batch_space(const Adaptation& adaptation);

/// Rehearses a training with adaptive batches that knows all curves, conditions and noise scales in
/// advance, until it reaches `progress` (Rehearsed::progress). Each step uses the batch, devices
/// and split with the most progress per second at that time. Changes take no pause, no step is
/// lost, and no square norms of gradients are computed. The last step counts as far as it is
/// needed. Jitter is not known in advance.
///
/// Batches come from a grid of 64 in equal ratios within the limits, rounded to multiples of the
/// plan's micro-batches: first coarse points, then those between the best ones. From 1 to 16 times
/// the first batch they lie 4.5 % apart. So the best batch is missed by at most half of that, which
/// costs at most a quarter of its square, 0.013 % (adapt/noise_pace.h). Each batch's program is
/// simulated once per setting of slow-downs and absences. Errors: as rehearse.
Result<Rehearsed> rehearse_best_batches(const ChosenPlan& chosen, const BatchSpace& space,
                                        const RehearsalChoices& choices, double progress);

}  // namespace motley::control
