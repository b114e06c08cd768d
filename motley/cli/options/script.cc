#include "motley/cli/options/script.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "motley/base/json.h"
#include "motley/cli/options/run_options.h"

namespace motley::cli {

namespace {

/// Removes --python INTERPRETER or --python=INTERPRETER and returns it; "": not given.
std::string take_python(std::vector<std::string>& flags) {
  const std::string name = "--python";
  for (auto flag = flags.begin(); flag != flags.end(); ++flag) {
    if (*flag == "--") break;
    if (flag->starts_with(name + "=")) {
      std::string python = flag->substr(name.size() + 1);
      flags.erase(flag);
      return python;
    }
    if (*flag != name || flag + 1 == flags.end()) continue;
    std::string python = *(flag + 1);
    flags.erase(flag, flag + 2);
    return python;
  }
  return "";
}

}  // namespace

std::optional<Script> find_script(const std::vector<std::string>& arguments) {
  if (arguments.empty()) return std::nullopt;
  if (arguments[0] == "verify" && std::count(arguments.begin(), arguments.end(), "--") > 0) {
    std::vector<std::string> flags(arguments.begin() + 1, arguments.end());
    Script verify{take_python(flags), {}, {"-m", "motley.torch.verify"}};
    verify.words.insert(verify.words.end(), flags.begin(), flags.end());
    return verify;
  }
  if (arguments[0] != "run") return std::nullopt;
  const auto script =
      std::find_if(arguments.begin() + 1, arguments.end(),
                   [](const std::string& argument) { return argument.ends_with(".py"); });
  if (script == arguments.end() || script->starts_with("-")) return std::nullopt;
  Script run{"", {arguments.begin() + 1, script}, {script, arguments.end()}};
  run.python = take_python(run.flags);
  return run;
}

Error become_script(const Script& script, const Context& context) {
  std::vector<std::string> words = {find_python(script.python, context)};
  words.insert(words.end(), script.words.begin(), script.words.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::setenv("MOTLEY_RUN_FLAGS", Json(script.flags).dump().c_str(), 1);
  if (!script.python.empty()) ::setenv("MOTLEY_PYTHON", script.python.c_str(), 1);
  ::setenv("MOTLEY_PROGRAM", context.program.c_str(), 1);
  ::execvp(pointers[0], pointers.data());
  return {ErrorKind::kRuntime, "run.spawn",
          fmt::format("cannot start {}: {}; --python or MOTLEY_PYTHON names an interpreter with "
                      "PyTorch and motley",
                      words[0], std::strerror(errno))};
}

}  // namespace motley::cli
