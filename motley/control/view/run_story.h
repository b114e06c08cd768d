#pragma once

#include <string>

#include "motley/base/json_forward.h"
#include "motley/control/view/found_run.h"
#include "motley/report/page/story.h"

namespace motley::control {

/// Tells what a run directory shows. What does not change while the run goes on (prediction,
/// program, cluster) is read once.
class RunTeller {
 public:
  /// The run must outlive it, and may be looked at again (look_again).
  explicit RunTeller(const FoundRun& run);
  /// What there is to tell now.
  report::Story tell() const;

 private:
  void add_memory(report::Story& story) const;
  void add_curves(report::Story& story) const;
  std::string verdict(const report::Story& story) const;

  const FoundRun& run_;
  report::Story still_;  // what stays
};

/// As `motley report --json` prints it: the run's summary or, of one that has none, as much of it
/// as the log says; and the story's.
Json run_to_json(const FoundRun& run, const report::Story& story);

/// Median of the logged steps, the first left out; 0: none.
Seconds logged_step(const Log& log);

}  // namespace motley::control
