#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/cluster/cluster.h"
#include "motley/cost/cost_model.h"
#include "motley/graph/graph.h"
#include "motley/plan/plan.h"
#include "motley/program/memory.h"
#include "motley/program/program.h"
#include "motley/trace/trace.h"

namespace motley::search {

struct DevicePrice {
  trace::Breakdown parts;
  trace::Nanoseconds without_transfer = 0;  ///< part with an empty transfer lane
  program::MemoryPeak memory;
  std::string peak_at;               ///< the operator that runs at the peak
  std::vector<std::string> largest;  ///< names of memory.largest
};

struct StepPrice {
  Seconds step;                      ///< simulated
  std::int64_t instructions = 0;     ///< of the device with the most
  std::vector<DevicePrice> devices;  ///< of the program

  /// Rounding error of `step`: times are whole nanoseconds.
  Seconds rounding() const { return Seconds(1e-9 * static_cast<double>(1 + instructions)); }
};

/// A priced program whose devices may represent others.
struct PricedProgram {
  StepPrice price;
  trace::Trace trace;
};

/// Simulates `steps` steps of a program. `group`: names of all exchanging devices; empty: the
/// program has all of them. `times`: the model's times of the program. O(instructions).
Result<PricedProgram> price_program(const program::Program& program,
                                    const std::vector<std::string>& group,
                                    const cost::CostModel& model,
                                    const std::vector<cost::CostModel::Times>& times,
                                    int steps = 1);

struct PlanPrice {
  StepPrice kinds;                   ///< one rank of each kind; ranks of a kind take as long
  std::vector<std::size_t> of_rank;  ///< by rank: its kind
  Seconds step;                      ///< with the devices' variation (expected_step.h)
};

/// Prices a plan of stages by programs of one device of each kind (synth::lower_stage_kinds).
/// `classes`: by rank, equal for devices with equal times. None if devices exchange differently
/// from their representatives.
Result<std::optional<PlanPrice>> price_stage_kinds(const graph::Graph& graph,
                                                   const plan::Plan& plan,
                                                   const cluster::Cluster& cluster,
                                                   const std::vector<int>& classes,
                                                   const cost::CostModel& model);

/// Extrapolates the price of a step by `more` micro-batches from three steps, each with one
/// micro-batch more than the one before: a program that repeats itself adds the same for each. None
/// if the last two increments differ, to the nanosecond or the byte, or if a lane's slack shrinks
/// with each micro-batch and will be used up.
std::optional<StepPrice> continue_line(const std::vector<StepPrice>& three, std::int64_t more);

}  // namespace motley::search
