#pragma once

#include <string>

#include "motley/base/json_forward.h"
#include "motley/control/view/found_run.h"
#include "motley/report/page/report_data.h"

namespace motley::control {

/// Reports on a run directory. Reads constant parts (prediction, program, cluster) once.
class RunReporter {
 public:
  /// The run must outlive it, and may change meanwhile.
  explicit RunReporter(const FoundRun& run);
  report::ReportData tell() const;

 private:
  void add_memory(report::ReportData& report_data) const;
  void add_curves(report::ReportData& report_data) const;
  std::string verdict(const report::ReportData& report_data) const;

  const FoundRun& run_;
  report::ReportData still_;
};

/// Returns `motley report --json`: the report data, and the run's summary or the log's part of it.
Json run_to_json(const FoundRun& run, const report::ReportData& report_data);

/// Median of the logged steps without the first; 0: none.
Seconds logged_step(const Log& log);

}  // namespace motley::control
