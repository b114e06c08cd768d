#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "motley/control/run_directory.h"

namespace motley::control {

enum class RunState {
  kPrepared,  ///< its directory exists, and nothing has started
  kRunning,
  kFinished,
  kStopped,  ///< on request, with a checkpoint
  kFailed,
  kEnded,  ///< its processes ended without a record: killed, or run by a script
};
std::string_view state_name(RunState state);

/// The current or last place of a rank.
struct RankPlace {
  int rank = 0;
  std::string device;
  bool is_running = false;
  std::optional<std::int64_t> step;  ///< none: it never started
  std::string where;                 ///< "step 17, ^9 motley::all_reduce"
};

/// A run as its directory shows it.
struct FoundRun {
  RunDirectory directory;
  run::Job job;
  bool is_script = false;  ///< a script's own loop trains, and the job has only devices
  RunState state = RunState::kPrepared;
  std::string how;                     ///< why it ended, in a sentence; "": the state says all
  std::vector<std::string> arguments;  ///< of the starting command; empty: unknown
  std::vector<RankPlace> ranks;
  Log log;
  std::optional<std::string> checkpoint;
  std::optional<Json> summary;           ///< of a run that finished or was stopped
  std::optional<trace::Trace> measured;  ///< likewise, on one clock; none: the ranks kept none
  std::optional<trace::Trace> predicted;
  std::vector<std::string> notes;  ///< damaged files that were skipped

  bool has_summary() const { return summary.has_value(); }
};

/// Usage errors: no run directory, an unreadable job.json or script.json. Other files may be
/// absent, incomplete or of an older version, which is noted.
Result<FoundRun> find_run(const std::string& path);

/// Writes {"arguments", "pid", "host"}: this process leads the run from now on.
Result<void> write_start(const RunDirectory& directory, const std::vector<std::string>& arguments);
/// Writes {"code", "message"}.
Result<void> write_failure(const RunDirectory& directory, const Error& error);

}  // namespace motley::control
