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

/// The common flags and the process's surroundings. Nothing else knows the environment.
struct Context {
  bool json = false;
  bool quiet = false;
  bool terminal = false;  ///< stderr is a terminal
  std::map<std::string, std::string> environment;
  control::Workers* workers = nullptr;
  const control::Clock* clock = nullptr;
  std::vector<std::string> arguments;
  std::string program;
  std::string profile_store;
  std::string launcher;  ///< for agents on other hosts; "": ssh
  std::string print_phase, stop_after, dump_dir;

  /// Prints the text, or with --json only the object, to stdout.
  void result(const std::string& text, const Json& object) const;
  /// Prints a line of progress or a note to stderr, unless --quiet.
  void note(const std::string& line) const;
};

/// Prints an error, as JSON {"error": {...}} with --json. Returns its exit code.
int report_error(const Context& context, const Error& error);

}  // namespace motley::cli
