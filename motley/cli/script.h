#pragma once

#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/cli/context.h"

namespace motley::cli {

/// `motley run [FLAGS] SCRIPT.py [ARGUMENTS]`: a training whose loop is the script's, which drives
/// the devices by motley.Run (python/motley/run.py). The flags go to that.
struct Script {
  std::vector<std::string> flags, words;  ///< words: the script and its arguments
};
/// Empty: the command line names no script.
std::optional<Script> find_script(const std::vector<std::string>& arguments);

/// Becomes Python. Returns only if it cannot.
Error become_script(const Script& script, const Context& context);

}  // namespace motley::cli
