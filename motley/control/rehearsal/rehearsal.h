#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/control/planning/chosen_plan.h"
#include "motley/control/rehearsal/noise_course.h"
#include "motley/control/rehearsal/rehearsed_market.h"
#include "motley/control/training/adapting.h"
#include "motley/simulate/conditions.h"

namespace motley::control {

struct RehearsalChoices {
  std::int64_t steps = 100;
  simulate::Conditions conditions;
  /// Steps of the old plan after a decision, while new programs are prepared during training.
  std::int64_t change_steps = 3;
  /// Pause of a change between two steps, beside moving tensors.
  Seconds change_pause;
  std::optional<NoiseCourse> noise = {};
  std::optional<RentRehearsal> rent = {};
};

struct Rehearsed {
  std::string policy;  ///< "none": no policy
  std::vector<policy::Decision> decisions;
  std::vector<double> step_s;  ///< by step, as it was last computed
  Seconds total;               ///< to the end of the last step
  std::int64_t changes = 0;    ///< plans that began after the first
  Seconds paused;              ///< for changes
  /// Steps lost with a device, and the time of these and of waiting for devices.
  std::int64_t lost_steps = 0;
  Seconds lost;
  std::string stopped;       ///< why it ended before its last step; "": it did not
  std::int64_t samples = 0;  ///< taken in total
  std::int64_t batch = 0;    ///< of the last step
  /// Worth of all steps in steps of the first batch (adapt/learning_rate.h).
  double progress = 0;
  std::optional<RehearsedRent> rent = {};

  double steps_per_second() const;
};

/// Simulates a training with the adaptation's policy, the job's controller and Adapting, as in a
/// run. Only processes are simulated: they start, halt, report and end as ordered. The priced
/// program runs on the simulator's clock under the conditions, and reports what workers report
/// (program/step_parts.h). A change begins `change_steps` after its decision, once its move
/// (simulated on the links; copies take no time) and `change_pause` are over. The first step of a
/// new program is not slower than others.
///
/// A lost device takes the current step with it. After recovery.detection the remaining devices
/// recompute it, with the policy's plan or the adaptation's `replan` (null: the best split over
/// them). A device in a notice leaves through a plan without it. If no plan is possible, the
/// remaining devices save and stop, and the job restarts (recovery.restart) once there is one;
/// otherwise the rehearsal ends. State comes from survivors or, if none of the plan's devices is
/// left, from the last checkpoint, which takes the same time.
///
/// With rented machines (machine_renting.h, rehearsed_market.h) it begins with the best split over
/// the present devices, and ends when the budget is spent.
///
/// Adaptive batches (Adaptation::batches) need `noise`: devices report squares of gradients drawn
/// for its scale (adapt/drawn_noise.h, from the conditions' seed) in a space of 200 dimensions. N
/// steps are the samples of N first batches, as in a run.
///
/// Simulates each program once per setting of slow-downs, or each step if there is jitter. Errors:
/// usage (simulate.conditions), conditions of unknown devices; those of the cost model, unknown
/// times of the first plan. Writes to a temporary directory.
Result<Rehearsed> rehearse(const ChosenPlan& chosen, Adaptation adaptation,
                           const RehearsalChoices& choices, Listener& listener);

/// Rehearses the first plan without a policy. After a loss the batch is still split again.
Result<Rehearsed> rehearse_as_planned(const ChosenPlan& chosen, const Adaptation& adaptation,
                                      const RehearsalChoices& choices, Listener& listener);

/// Rehearses the training with all conditions but jitter known in advance, without pauses and lost
/// steps. Each step uses the fastest candidate or, if the batch can be split, the best split for
/// the current slow-downs and devices. `decisions` is empty.
Result<Rehearsed> rehearse_knowing_all(const ChosenPlan& chosen, const Adaptation& adaptation,
                                       const RehearsalChoices& choices);

}  // namespace motley::control
