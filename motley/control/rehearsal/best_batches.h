#pragma once

#include <cstdint>
#include <functional>

#include "motley/control/planning/chosen_plan.h"
#include "motley/control/rehearsal/rehearsal.h"
#include "motley/control/training/adaptation.h"

namespace motley::control {

/// The batches that a training may have.
struct BatchSpace {
  std::int64_t first = 1;            ///< in whose steps progress is counted
  std::int64_t least = 1, most = 1;  ///< samples a step
  std::function<Result<Candidate>(const policy::UseBatch&)> make;  ///< a plan
};
/// Of an adaptation that decides the batch.
BatchSpace batch_space(const Adaptation& adaptation);

/// A training whose batch is decided, as who knows all curves, conditions and
/// the noise scale beforehand would do it until `progress` is reached (Rehearsed::progress): each
/// step by the batch, devices and split with the most progress a second at that time, without a
/// pause for changes, with no step lost, and without counting squares of gradients. The last step
/// counts as far as it is needed. Jitter is not known.
///
/// Batches are taken from a grid of 64 in equal ratios within its limits, as near as multiples of
/// the plan's micro-batches are, coarse points first and then between the best ones. From 1 to 16
/// times the first batch they lie 4.5 % apart, and the best one is missed by at most half of that,
/// which loses at most a quarter of its square, 0.013 % (adapt/noise_pace.h). Each batch's program
/// is simulated once a setting of slow-downs and absences. Errors: as rehearse.
Result<Rehearsed> rehearse_best_batches(const ChosenPlan& chosen, const BatchSpace& space,
                                        const RehearsalChoices& choices, double progress);

}  // namespace motley::control
