#pragma once

#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/cli/context/context.h"

namespace motley::cli {

/// What Python does under a word of the command line:
///   motley run [FLAGS] SCRIPT.py [ARGUMENTS]   a training whose loop is the script's, which drives
///     the devices by motley.Run (python/motley/run.py). The flags go to that.
///   motley verify [FLAGS] -- COMMAND           a training of PyTorch's own, by motley.torch
///     (python/motley/torch/verify.py)
struct Script {
  std::string python;                     ///< by --python; "": MOTLEY_PYTHON, or python3
  std::vector<std::string> flags, words;  ///< words: what the interpreter is given
};
/// Empty: the command line names no script.
std::optional<Script> find_script(const std::vector<std::string>& arguments);

/// Becomes Python. Returns only if it cannot.
Error become_script(const Script& script, const Context& context);

}  // namespace motley::cli
