#pragma once

#include <map>
#include <string>
#include <vector>

#include "motley/control/clock.h"
#include "motley/control/workers.h"

namespace motley::cli {

/// The process's environment, set up by main or by tests. Owns nothing.
struct Surroundings {
  std::map<std::string, std::string> environment;
  control::Workers* workers = nullptr;
  const control::Clock* clock = nullptr;
  std::string program;
  bool terminal = false;
};

/// Motley's own version: "0.1.0".
std::string version();

/// Runs the command line and returns its exit code. `arguments` lacks the program's name.
int run_app(std::vector<std::string> arguments, const Surroundings& surroundings);

}  // namespace motley::cli
