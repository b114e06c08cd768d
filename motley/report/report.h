#pragma once

#include <string>
#include <vector>

#include "motley/plan/planner.h"
#include "motley/trace/trace.h"

namespace motley::report {

/// Chrome/Perfetto JSON of a trace: one process a device, one thread a lane (slices never overlap
/// on a thread), counter track for memory. Times in microseconds.
std::string print_chrome_trace(const trace::Trace& trace);

/// The answer of a planner as a table for people: chosen plan beside equal split, best single
/// device and lower bound; devices with samples and peak memory; idle devices; why.
std::string print_outcome(const plan::PlanOutcome& outcome, const cluster::Cluster& cluster);

/// A plan in a few words: "24:12:4", "16 devices, 32 each in stages".
std::string plan_label(const plan::Plan& plan);

/// What was said of a run before it, or what came out.
struct RunFigures {
  const trace::Trace& trace;
  Seconds step;              ///< median
  std::vector<Bytes> peaks;  ///< by device
};

/// An operator's part of what all operators and exchanges take on all devices: of one name,
/// whatever layer it is of. Waiting is no part of it.
struct OperatorShare {
  std::string name;
  double predicted = 0, measured = 0;
  double deviation() const { return predicted - measured; }
};
/// Of all that either trace has, exchanges too; those that deviate most come first.
std::vector<OperatorShare> compare_operators(const trace::Trace& predicted,
                                             const trace::Trace& measured);

/// The shares that print_comparison shows, as `motley report --json` has them: `time_shares`, by
/// device what a step is divided into, and `operator_shares`, all of them.
Json shares_to_json(const trace::Trace& predicted, const trace::Trace& measured);

/// Predicted beside measured: step time and memory; of each device's step compute, exchange,
/// waiting and what is idle otherwise, which sum to it; shares of operators, those that deviate
/// most first.
std::string print_comparison(const RunFigures& predicted, const RunFigures& measured);

}  // namespace motley::report
