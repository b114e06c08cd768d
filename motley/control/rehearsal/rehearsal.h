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

/// How a training is rehearsed.
struct RehearsalChoices {
  std::int64_t steps = 100;
  simulate::Conditions conditions;
  /// Steps of the old plan after a decision, while new programs are prepared during training.
  std::int64_t change_steps = 3;
  /// Pause of a change between two steps, beside moving tensors.
  Seconds change_pause;
  /// Gradient noise of a training with adaptive batches.
  std::optional<NoiseCourse> noise = {};
  /// Set for a training with rented machines.
  std::optional<RentRehearsal> rent = {};
};

/// The result of a simulated training.
struct Rehearsed {
  std::string policy;  ///< "none": no policy
  std::vector<policy::Decision> decisions;
  std::vector<double> step_s;  ///< by step, as it was last computed
  Seconds total;               ///< to the end of the last step
  std::int64_t changes = 0;    ///< plans that began after the first
  Seconds paused;              ///< for changes
  /// Steps, complete or begun, that were lost with a device; and the time of these and of waiting
  /// for devices.
  std::int64_t lost_steps = 0;
  Seconds lost;
  std::string stopped;       ///< why it ended before its last step; "": it did not
  std::int64_t samples = 0;  ///< taken in total
  std::int64_t batch = 0;    ///< of the last step
  /// The worth of all steps in steps of the first batch (adapt/learning_rate.h); equals the number
  /// of steps if the batch stays.
  double progress = 0;
  std::optional<RehearsedRent> rent = {};  ///< where machines are rented

  /// 0 without steps.
  double steps_per_second() const;
};

/// Simulates a training with the adaptation's policy, the job's controller and Adapting, as in a
/// run. Only the processes are simulated: they start, halt, report and end as ordered. The priced
/// program of each step runs on the simulator's clock under the conditions, and reports what
/// workers report (program/step_parts.h). A change begins `change_steps` after its decision, once
/// its move (simulated on the links; copies take no time) and `change_pause` are over. The first
/// step of a new program is not slower than others.
///
/// A lost device takes the current step with it. After recovery.detection the remaining devices
/// recompute it, as in an elastic run: with the policy's plan, or with the adaptation's `replan`
/// (null: the best split over them). A device in a notice leaves through a plan without it. If no
/// plan is possible, the remaining devices save and stop. The job restarts (recovery.restart) once
/// there is a plan for the present devices; otherwise the rehearsal ends. State comes from
/// survivors, or, if none of the plan's devices is left, from the last checkpoint, which takes the
/// same time.
///
/// With rented machines (machine_renting.h, rehearsed_market.h) it begins with the best split over
/// the present devices, and ends when the budget is spent.
///
/// Adaptive batches (Adaptation::batches) need `noise`: devices report squares of gradients drawn
/// for its scale (adapt/drawn_noise.h, from the conditions' seed) in a space of 200 dimensions. N
/// steps are the samples of N first batches, as in a run.
///
/// Simulates each program once per setting of slow-downs, or each step if there is jitter. Errors:
/// usage (simulate.conditions), the conditions name devices that are not among the inputs'; those
/// of the cost model, a time of the first plan is unknown. Writes to a temporary directory.
Result<Rehearsed> rehearse(const ChosenPlan& chosen, Adaptation adaptation,
                           const RehearsalChoices& choices, Listener& listener);

/// Rehearses the training with the adaptation's first plan and no policy. A plan that loses a
/// device is still split again.
Result<Rehearsed> rehearse_as_planned(const ChosenPlan& chosen, const Adaptation& adaptation,
                                      const RehearsalChoices& choices, Listener& listener);

/// Rehearses the training with all conditions known in advance, without pauses for changes and lost
/// steps. Each step uses the fastest of the adaptation's candidates and, if it can split the batch,
/// of the best splits for the current slow-downs and devices. Jitter is not known in advance.
/// `decisions` is empty.
Result<Rehearsed> rehearse_knowing_all(const ChosenPlan& chosen, const Adaptation& adaptation,
                                       const RehearsalChoices& choices);

}  // namespace motley::control
