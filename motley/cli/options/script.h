#pragma once

#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/cli/context/context.h"

namespace motley::cli {

/// A command that Python runs under a verb:
///   motley run [FLAGS] SCRIPT.py [ARGUMENTS]   a training by the script's own loop, which drives
///     the devices with motley.Run (python/motley/run.py) and its flags
///   motley verify [FLAGS] -- COMMAND           PyTorch's own training, with motley.torch
///     (python/motley/torch/verify.py)
struct Script {
  std::string python;                     ///< from --python; "": MOTLEY_PYTHON, or python3
  std::vector<std::string> flags, words;  ///< words: the interpreter's arguments
};
/// None: the command line names no script.
std::optional<Script> find_script(const std::vector<std::string>& arguments);

/// Replaces this process by Python. Returns only on failure.
Error become_script(const Script& script, const Context& context);

}  // namespace motley::cli
