#pragma once

#include <string>
#include <vector>

#include "motley/plan/planner.h"
#include "motley/trace/trace.h"

namespace motley::report {

/// Prints a trace as Chrome/Perfetto JSON: one process per device, one thread per lane (slices
/// never overlap on a thread), a counter track for memory. Times in microseconds.
std::string print_chrome_trace(const trace::Trace& trace);

/// Prints a planner's answer as a table: chosen plan, equal split, best single device and lower
/// bound; devices with samples and peak memory; idle devices; why.
std::string print_outcome(const plan::PlanOutcome& outcome, const cluster::Cluster& cluster);

/// Describes a plan in a few words: "24:12:4", "16 devices, 32 each in stages".
std::string plan_label(const plan::Plan& plan);

struct RunFigures {
  const trace::Trace& trace;
  Seconds step;              ///< median
  std::vector<Bytes> peaks;  ///< by device
};

/// One operator's share of all operators and exchanges on all devices, by name. Excludes waiting.
struct OperatorShare {
  std::string name;
  double predicted = 0, measured = 0;
  double deviation() const { return predicted - measured; }
};
/// Compares all operators and exchanges of either trace; the largest deviation comes first.
std::vector<OperatorShare> compare_operators(const trace::Trace& predicted,
                                             const trace::Trace& measured);

/// Returns `time_shares` by device and all `operator_shares`, for `motley report --json`.
Json shares_to_json(const trace::Trace& predicted, const trace::Trace& measured);

/// Prints predicted beside measured: step time and memory; compute, exchange, waiting and other
/// idle time of each device, which sum to its step; shares of operators, largest deviation first.
std::string print_comparison(const RunFigures& predicted, const RunFigures& measured);

}  // namespace motley::report
