#pragma once

#include <string>

#include "motley/base/json_forward.h"
#include "motley/control/view/found_run.h"
#include "motley/report/page/report_data.h"

namespace motley::control {

/// Tells what a run directory shows. What does not change while the run goes on (prediction,
/// program, cluster) is read once.
class RunReporter {
 public:
  /// The run must outlive it, and may be looked at again (look_again).
  explicit RunReporter(const FoundRun& run);
  /// What there is to tell now.
  report::ReportData tell() const;

 private:
  void add_memory(report::ReportData& report_data) const;
  void add_curves(report::ReportData& report_data) const;
  std::string verdict(const report::ReportData& report_data) const;

  const FoundRun& run_;
  report::ReportData still_;  // what stays
};

/// As `motley report --json` prints it: the run's summary or, of one that has none, as much of it
/// as the log says; and the report data's.
Json run_to_json(const FoundRun& run, const report::ReportData& report_data);

/// Median of the logged steps, the first left out; 0: none.
Seconds logged_step(const Log& log);

}  // namespace motley::control
