#pragma once

#include <cstdint>
#include <functional>

#include "motley/control/planning/chosen_plan.h"
#include "motley/control/rehearsal/rehearsal.h"
#include "motley/control/training/adaptation.h"

namespace motley::control {

struct BatchSpace {
  std::int64_t first = 1;            ///< progress is counted in steps of this batch
  std::int64_t least = 1, most = 1;  ///< samples per step
  std::function<Result<Candidate>(const policy::UseBatch&)> make;
};
BatchSpace batch_space(const Adaptation& adaptation);

/// Rehearses a training with adaptive batches that knows all curves, conditions and noise scales,
/// but not jitter, in advance. Until it reaches `progress` (Rehearsed::progress), each step uses
/// the batch, devices and split with the most progress per second. Changes take no pause, no step
/// is lost, and no square norms are computed. The last step counts as far as it is needed.
///
/// Batches come from a grid of 64 in equal ratios, rounded to multiples of the plan's
/// micro-batches: coarse points first, then between the best ones. From 1 to 16 times the first
/// batch they lie 4.5 % apart. The best batch is missed by at most half of that, which costs at
/// most a quarter of its square, 0.013 % (adapt/noise_pace.h). Simulates each batch once per
/// setting of slow-downs and absences. Errors: as rehearse.
Result<Rehearsed> rehearse_best_batches(const ChosenPlan& chosen, const BatchSpace& space,
                                        const RehearsalChoices& choices, double progress);

}  // namespace motley::control
