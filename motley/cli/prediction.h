#pragma once

#include <optional>
#include <string>
#include <vector>

#include "motley/cli/planning.h"
#include "motley/cost/trust/experience.h"
#include "motley/cost/trust/interval.h"
#include "motley/program/memory.h"
#include "motley/trace/trace.h"

namespace motley::cli {

/// What is said of a plan before it runs.
struct Prediction {
  trace::Trace trace;  ///< of the lowered plan on the inputs' cost tables
  /// Seconds; 80 % of measured steps are to lie in it. Its value is the median over steps in which
  /// each device varies as it was seen to: where devices meet, the slowest counts.
  cost::PredictionInterval step;
  std::vector<trace::Breakdown> parts;            ///< of the trace, by rank
  std::vector<cost::PredictionInterval> peaks;    ///< bytes, by rank
  std::vector<program::MemoryPeak> memory;        ///< what the peaks are made of, by rank
  std::vector<Bytes> framework;                   ///< beside the peaks, by rank
  std::vector<std::vector<std::string>> largest;  ///< names of the largest tensors at the peak
  std::vector<cost::Grounds> grounds;             ///< of the times, by rank
  cost::Origin origin = cost::Origin::kMeasured;
  std::string basis;  ///< what the intervals rest on
};
Result<Prediction> predict(const Inputs& inputs, const search::Costs& costs, const plan::Plan& plan,
                           int steps);

/// The same; none, and a note, where the times of a plan that splits operators are not known.
Result<std::optional<Prediction>> find_prediction(const Inputs& inputs, const search::Costs& costs,
                                                  const plan::Plan& plan, int steps,
                                                  const Context& context);

/// Keys beside the verbs' own: intervals, their basis, and what each device does and holds.
void add_prediction(const Prediction& prediction, Json& object);
/// The same for people: a line a device.
std::string print_prediction(const Prediction& prediction);

/// Keeps a prediction beside what the run measured, so that later intervals rest on it. Those of
/// modelled times are not kept: they tell of the model, not of the machine.
Result<void> remember(const Inputs& inputs, const Prediction& prediction, Seconds step,
                      const std::vector<std::int64_t>& peak_bytes, const std::string& store_path);

/// Reads a plan file for the inputs; verifies it against model, cluster and memory (exit 4 if
/// stale, 3 if it does not fit).
Result<plan::Plan> read_plan(const std::string& path, const Inputs& inputs);

/// Every device of the plan holds its program within its memory; else infeasible, with arithmetic.
Result<void> check_memory(const Inputs& inputs, const plan::Plan& plan);

}  // namespace motley::cli
