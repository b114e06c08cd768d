#pragma once

#include <map>
#include <string>
#include <vector>

#include "motley/control/clock.h"
#include "motley/control/workers.h"

namespace motley::cli {

/// What lies outside the process, as main finds it and tests make it. Nothing is owned.
struct Surroundings {
  std::map<std::string, std::string> environment;
  control::Workers* workers = nullptr;
  const control::Clock* clock = nullptr;
  std::string program;    ///< path of motley itself
  bool terminal = false;  ///< stderr is a terminal
};

/// Motley's own: "0.1.0".
std::string version();

/// The whole command line: parses flags, runs a verb, prints what it returns. `arguments` without
/// the program's name. Returns the exit code.
int run_app(std::vector<std::string> arguments, const Surroundings& surroundings);

}  // namespace motley::cli
