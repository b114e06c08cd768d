#pragma once

#include <map>
#include <string>
#include <vector>

#include "motley/base/exit_code.h"
#include "motley/base/json_forward.h"
#include "motley/base/result.h"
#include "motley/control/clock.h"
#include "motley/control/workers.h"

namespace motley::cli {

/// What every verb may use: flags that all verbs share, and what lies outside the process. The only
/// place that knows the environment.
struct Context {
  bool json = false;
  bool quiet = false;
  bool terminal = false;  ///< stderr is a terminal: progress may be redrawn in place
  std::map<std::string, std::string> environment;
  control::Workers* workers = nullptr;
  const control::Clock* clock = nullptr;
  std::vector<std::string> arguments;  ///< as the process was given them
  std::string program;                 ///< path of motley itself
  std::string profile_store;           ///< default path of the profile store
  std::string launcher;                ///< of agents on other hosts; "": ssh
  std::string print_phase, stop_after, dump_dir;

  /// Result for people, or the JSON object, to stdout. With --json only `json` is printed.
  void result(const std::string& text, const Json& object) const;
  /// A line of progress or a note, to stderr unless --quiet.
  void note(const std::string& line) const;
};

/// Prints an error as people read it, and as JSON {"error": {...}} with --json. Returns its exit
/// code.
int report_error(const Context& context, const Error& error);

}  // namespace motley::cli
