#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "motley/control/run_directory.h"

namespace motley::control {

/// What has become of a run.
enum class RunState {
  kPrepared,  ///< its directory is there, and nothing has started
  kRunning,
  kFinished,
  kStopped,  ///< told to, with a checkpoint
  kFailed,   ///< with a message
  kEnded,    ///< its processes are gone and left no word: killed, or led by a script
};
/// "prepared", "running", ...
std::string_view state_name(RunState state);

/// Where a rank is, or was last seen.
struct RankPlace {
  int rank = 0;
  std::string device;
  bool is_running = false;
  std::optional<std::int64_t> step;  ///< none: it never started
  std::string where;                 ///< "step 17, ^9 motley::all_reduce"
};

/// A run in whatever state its directory shows.
struct FoundRun {
  RunDirectory directory;
  run::Job job;
  bool is_script = false;  ///< a script's own loop trains; of the job there are its devices alone
  RunState state = RunState::kPrepared;
  std::string how;                     ///< it ended, in a sentence; "" where the state says all
  std::vector<std::string> arguments;  ///< of the command that started it; empty: not known
  std::vector<RankPlace> ranks;
  Log log;
  std::optional<std::string> checkpoint;  ///< the latest
  std::optional<Json> summary;            ///< of a run that has finished or was stopped
  std::optional<trace::Trace> measured;   ///< likewise, by one clock; none: its ranks kept none
  std::optional<trace::Trace> predicted;
  std::vector<std::string> notes;  ///< files that are damaged and were left out

  /// Did it come to its end, so that it has a summary?
  bool has_summary() const { return summary.has_value(); }
};

/// Usage errors: no run directory, or one whose job.json or script.json cannot be read. Other files
/// may be absent, half written or of an older version: what cannot be read is left out, with a
/// note.
Result<FoundRun> find_run(const std::string& path);

/// {"arguments", "pid", "host"}: this process leads the run from now on.
Result<void> write_start(const RunDirectory& directory, const std::vector<std::string>& arguments);
/// {"code", "message"}
Result<void> write_failure(const RunDirectory& directory, const Error& error);

}  // namespace motley::control
