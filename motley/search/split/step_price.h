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

/// What a device does in a step, and holds.
struct DevicePrice {
  trace::Breakdown parts;
  trace::Nanoseconds without_transfer = 0;  ///< of `parts`: nothing is in its transfer lane
  program::MemoryPeak memory;
  std::string peak_at;               ///< the operator that runs then
  std::vector<std::string> largest;  ///< names of memory.largest
};

/// What a step takes and needs, as its program says.
struct StepPrice {
  Seconds step;                      ///< simulated
  std::int64_t instructions = 0;     ///< of the device that has most
  std::vector<DevicePrice> devices;  ///< of the program

  /// Of `step`: times are whole nanoseconds.
  Seconds rounding() const { return Seconds(1e-9 * static_cast<double>(1 + instructions)); }
};

/// A program with its times on devices of which some stand for others like them.
struct PricedProgram {
  StepPrice price;
  trace::Trace trace;
};

/// Simulates so many steps of a program. `group`: names of all devices that exchange; empty: the
/// program has all of them; `times`: of the program, as the model says. O(instructions).
Result<PricedProgram> price_program(const program::Program& program,
                                    const std::vector<std::string>& group,
                                    const cost::CostModel& model,
                                    const std::vector<cost::CostModel::Times>& times,
                                    int steps = 1);

/// What a plan's step takes and needs.
struct PlanPrice {
  StepPrice kinds;                   ///< of one rank of each kind; ranks of a kind take as long
  std::vector<std::size_t> of_rank;  ///< its kind
  Seconds step;                      ///< with what devices vary by (expected_step.h)
};

/// That of a plan of stages, by programs of one device of each kind (synth::lower_stage_kinds).
/// `classes`: by rank, equal of devices that take the same. None: devices do not exchange as those
/// that would stand for them.
Result<std::optional<PlanPrice>> price_stage_kinds(const graph::Graph& graph,
                                                   const plan::Plan& plan,
                                                   const cluster::Cluster& cluster,
                                                   const std::vector<int>& classes,
                                                   const cost::CostModel& model);

/// The price of a step in `more` micro-batches more than the last of three, each of which has one
/// more than the one before: a program that repeats itself takes and needs as much for each one.
/// None where the last did not add what the one before did, to the nanosecond and the byte; nor
/// where a lane has less time to spare with each, and will have none.
std::optional<StepPrice> continue_line(const std::vector<StepPrice>& three, std::int64_t more);

}  // namespace motley::search
