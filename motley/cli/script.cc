#include "motley/cli/script.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "motley/base/json.h"
#include "motley/cli/run_options.h"

namespace motley::cli {

std::optional<Script> find_script(const std::vector<std::string>& arguments) {
  if (arguments.empty()) return std::nullopt;
  if (arguments[0] == "verify" && std::count(arguments.begin(), arguments.end(), "--") > 0) {
    std::vector<std::string> words = {"-m", "motley.torch.verify"};
    words.insert(words.end(), arguments.begin() + 1, arguments.end());
    return Script{{}, std::move(words)};
  }
  if (arguments[0] != "run") return std::nullopt;
  const auto script =
      std::find_if(arguments.begin() + 1, arguments.end(),
                   [](const std::string& argument) { return argument.ends_with(".py"); });
  if (script == arguments.end() || script->starts_with("-")) return std::nullopt;
  return Script{{arguments.begin() + 1, script}, {script, arguments.end()}};
}

Error become_script(const Script& script, const Context& context) {
  std::vector<std::string> words = {find_python("", context)};
  words.insert(words.end(), script.words.begin(), script.words.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::setenv("MOTLEY_RUN_FLAGS", Json(script.flags).dump().c_str(), 1);
  ::setenv("MOTLEY_PROGRAM", context.program.c_str(), 1);
  ::execvp(pointers[0], pointers.data());
  return {ErrorKind::kRuntime, "run.spawn",
          fmt::format("cannot start {}: {}; MOTLEY_PYTHON names an interpreter with PyTorch and "
                      "motley",
                      words[0], std::strerror(errno))};
}

}  // namespace motley::cli
