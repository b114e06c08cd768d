#pragma once

#include <optional>
#include <string>
#include <vector>

#include "motley/control/planning/mirroring.h"
#include "motley/control/planning/planning.h"
#include "motley/cost/trust/experience.h"
#include "motley/cost/trust/interval.h"
#include "motley/search/split/step_evaluator.h"
#include "motley/trace/trace.h"

namespace motley::control {

/// What is said of one device of a plan before it runs.
struct DevicePrediction {
  std::string name;
  search::DevicePrice price;
  cost::PredictionInterval peak = {};  ///< bytes, with the framework's
  Bytes framework = {};                ///< beside the price's tensors
  bool is_framework_measured = false;  ///< on that kind of device, not of usual figures
  cost::Grounds grounds = {};          ///< of the times
};

/// What is said of a plan before it runs.
struct Predicted {
  trace::Trace trace;  ///< of the plan's program on the cost tables; empty if that was not made
  /// Seconds; 80 % of measured steps are to lie in it. Its value is the median over steps in which
  /// each device varies as it was seen to: where devices meet, the slowest counts.
  cost::PredictionInterval step;
  std::vector<DevicePrediction> devices;  ///< by rank
  cost::Origin origin = cost::Origin::kMeasured;
  std::string basis;                   ///< what the intervals rest on
  std::optional<MirrorPrice> mirrors;  ///< of a program that is to outlive losses

  Seconds seconds() const { return Seconds(step.value); }
};

/// What the plan's program takes and needs, by a simulation of so many steps of it.
struct PricedPlan {
  search::PlanPrice price;
  trace::Trace trace;
};
Result<PricedPlan> price_planned(const Inputs& inputs, const Planned& planned,
                                 const search::Costs& costs, int steps);

/// Simulates the plan's program for so many steps, and puts intervals around the results from what
/// earlier runs' predictions were off by.
Result<Predicted> predict(const Inputs& inputs, const Planned& planned, const search::Costs& costs,
                          int steps);

/// The same of one step without a trace, which needs no program of the whole step, unless it is to
/// outlive losses: what mirrors and commits take is of all its devices.
Result<Predicted> foresee(const Inputs& inputs, const plan::Plan& plan, const Priced& priced);

/// The outcome's steps with what devices vary by, which planners leave out: as much as its plan's,
/// of which this was foreseen.
void add_variation(const Predicted& predicted, plan::PlanOutcome& outcome);

/// What was predicted; none, and a note, where the times of a plan that splits operators are not
/// known.
Result<std::optional<Predicted>> if_known(Result<Predicted> predicted, Listener& listener);

/// How a store names what was predicted of the inputs' "step" or "memory", without figures.
cost::PredictionEntry prediction_entry(const Inputs& inputs, const char* quantity);

}  // namespace motley::control
