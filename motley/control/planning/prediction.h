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

struct DevicePrediction {
  std::string name;
  search::DevicePrice price;
  cost::PredictionInterval peak = {};  ///< bytes, including the framework's
  Bytes framework = {};                ///< beside the price's tensors
  bool is_framework_measured = false;  ///< on that device kind, instead of the usual figures
  cost::Grounds grounds = {};
};

struct Predicted {
  trace::Trace trace;  ///< simulated with the cost tables; empty if there is no program
  /// Seconds; 80 % of measured steps should lie in the interval. Its value is the median over steps
  /// with the devices' observed variation: where devices meet, the slowest counts.
  cost::PredictionInterval step;
  std::vector<DevicePrediction> devices;
  cost::Origin origin = cost::Origin::kMeasured;
  std::string basis;                   ///< the grounds of the intervals
  std::optional<MirrorPrice> mirrors;  ///< of a program that must survive losses

  Seconds seconds() const { return Seconds(step.value); }
};

struct PricedPlan {
  search::PlanPrice price;
  trace::Trace trace;
};
Result<PricedPlan> price_planned(const Inputs& inputs, const Planned& planned,
                                 const search::Costs& costs, int steps);

/// Simulates `steps` steps of the program; intervals come from earlier predictions' errors.
Result<Predicted> predict(const Inputs& inputs, const Planned& planned, const search::Costs& costs,
                          int steps);

/// Predicts one step without a trace. Needs the whole program only if the plan must survive losses,
/// because mirrors and commits involve all devices.
Result<Predicted> foresee(const Inputs& inputs, const plan::Plan& plan, const Priced& priced);

/// Adds the devices' variation, which planners omit, to the outcome's steps: as in `predicted`.
void add_variation(const Predicted& predicted, plan::PlanOutcome& outcome);

/// Returns the prediction; none, with a note, if a plan that splits operators has unknown times.
Result<std::optional<Predicted>> if_known(Result<Predicted> predicted, Listener& listener);

cost::PredictionEntry prediction_entry(const Inputs& inputs, const char* quantity);

}  // namespace motley::control
