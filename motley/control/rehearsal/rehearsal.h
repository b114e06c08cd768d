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
  /// Steps that are still done as before when a change was decided: new programs are prepared
  /// beside training.
  std::int64_t change_steps = 3;
  /// What a change takes between two steps, beside moving tensors.
  Seconds change_pause;
  /// Of a training whose batch is decided: what its gradients' noise is like.
  std::optional<NoiseCourse> noise = {};
  /// Of a training whose machines are rented.
  std::optional<RentRehearsal> rent = {};
};

/// A training that was simulated step after step.
struct Rehearsed {
  std::string policy;  ///< "none": nobody decided
  std::vector<policy::Decision> decisions;
  std::vector<double> step_s;  ///< of each step, as it was done at last
  Seconds total;               ///< to the end of the last step
  std::int64_t changes = 0;    ///< plans that were gone on by
  Seconds paused;              ///< for changes
  /// Steps that were begun or done, and lost with a device, and what that and waiting for devices
  /// took.
  std::int64_t lost_steps = 0;
  Seconds lost;
  std::string stopped;       ///< why it ended before its last step; "": it did not
  std::int64_t samples = 0;  ///< that were taken
  std::int64_t batch = 0;    ///< of the last step
  /// What all steps are worth, in steps of the first batch (adapt/learning_rate.h): as many where
  /// the batch stays.
  double progress = 0;
  std::optional<RehearsedRent> rent = {};  ///< where machines are rented

  /// 0 where nothing was done.
  double steps_per_second() const;
};

/// Trains by simulation: the policy of the adaptation, the job's controller and all that Adapting
/// makes of them, as in a run, with processes that are simulated. They start, halt, say where they
/// stand and end when they are told to. In place of their work the priced program runs on the
/// simulator's clock, a step at a time, under the conditions, and says of each step what workers
/// say of theirs (program/step_parts.h). A change begins `change_steps` after it was decided, when
/// its move (simulated on the links, copies taking nothing) and `change_pause` are over. A first
/// step by a new program is not slower than others.
///
/// A device that goes away takes the step that is under way with it; it is done again when that is
/// known (recovery.detection) by those that are left, as in an elastic run: by the policy's plan,
/// or by the adaptation's `replan` (null: the best split over them). One that a notice names leaves
/// by a plan without it. Where no plan is possible those that are left save and stop, and the job
/// begins again (recovery.restart) once there is a plan for the devices that are there; or the
/// rehearsal ends. State comes from survivors; where none of the plan's devices is left, from the
/// last checkpoint, which takes the same.
///
/// Where machines are rented (machine_renting.h, rehearsed_market.h) it begins with those that are
/// there, by the best split over them. Ends where the budget is spent.
///
/// Where the batch is decided (Adaptation::batches) `noise` must be there: devices say squares
/// of gradients drawn for its scale (adapt/drawn_noise.h, from the conditions' seed) in a space of
/// 200 dimensions. Steps are counted in samples, as in a run: N of them are N first batches.
///
/// Simulates each program once for each setting of slow-downs, or, with jitter, each step. Errors:
/// usage (simulate.conditions), where conditions name devices that are not among the inputs'; of
/// the cost model where the first plan's times are not known. Writes to a directory of its own,
/// which is gone afterwards.
Result<Rehearsed> rehearse(const ChosenPlan& chosen, Adaptation adaptation,
                           const RehearsalChoices& choices, Listener& listener);

/// The same training by the plan that the adaptation begins by, where nobody decides; a plan that
/// has lost a device is split again all the same.
Result<Rehearsed> rehearse_as_planned(const ChosenPlan& chosen, const Adaptation& adaptation,
                                      const RehearsalChoices& choices, Listener& listener);

/// As who knows all conditions beforehand would do it, without a pause for changes and with no step
/// lost: each step is done by the fastest of the adaptation's candidates and, where it can split
/// the batch, of the split that is best for the slow-downs and devices of that time. Jitter is not
/// known. `decisions` is empty.
Result<Rehearsed> rehearse_knowing_all(const ChosenPlan& chosen, const Adaptation& adaptation,
                                       const RehearsalChoices& choices);

}  // namespace motley::control
