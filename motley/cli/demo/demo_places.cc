#include "motley/cli/demo/demo_places.h"

#include <fmt/format.h>

#include <filesystem>

#include "motley/base/text.h"
#include "motley/run/launch/programs.h"

namespace motley::cli {
namespace {

namespace fs = std::filesystem;

constexpr double kAsking = 20;  // seconds, from a cold disk
/// Prints the first argument that is no module. A missing parent package raises an error.
constexpr const char* kAsk = R"(import importlib.util, sys
def has(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
print(next((name for name in sys.argv[1:] if not has(name)), "")))";
constexpr const char* kSomeExample = "digits_cnn.py";

bool is_there(const fs::path& path) {
  std::error_code code;
  return fs::exists(path, code);
}

/// Returns the folder above the program's: of the sources, or of the package.
fs::path root_of(const std::string& program) {
  return fs::path(program).parent_path().parent_path();
}

/// Returns the interpreter of the environment that is `folders` levels above this file.
std::string interpreter_above(fs::path file, int folders) {
  for (int i = 0; i < folders; ++i) file = file.parent_path();
  return (file / "bin/python3").string();
}

struct Candidate {
  std::string python, what;
};

std::vector<Candidate> python_candidates(const DemoSearch& search, bool is_installed) {
  if (!search.python.empty()) return {{search.python, "--python"}};
  if (!search.named_python.empty()) return {{search.named_python, "MOTLEY_PYTHON"}};
  std::vector<Candidate> candidates;
  if (is_installed)  // lib/python3.X/site-packages/motley/bin/motley
    candidates.push_back({interpreter_above(search.program, 6), "of motley's environment"});
  if (!search.torch_folder.empty())  // lib/python3.X/site-packages/torch
    candidates.push_back(
        {interpreter_above(search.torch_folder, 4), "beside the worker's PyTorch"});
  if (!is_installed)
    candidates.push_back(
        {(root_of(search.program) / ".venv/bin/python").string(), "of the sources"});
  candidates.push_back({"python3", "in PATH"});
  return candidates;
}

Result<std::string> find_interpreter(const DemoSearch& search, bool is_installed,
                                     const AskPython& ask) {
  std::vector<std::string> modules = {"torch"};
  if (is_installed) modules.emplace_back("motley.export");
  std::vector<std::string> tried;
  for (const auto& [python, what] : python_candidates(search, is_installed)) {
    const bool is_path = python.find('/') != std::string::npos;
    const std::string fault = is_path && !is_there(python) ? "is not there" : ask(python, modules);
    if (fault.empty()) return python;
    tried.push_back(fmt::format("{} ({}) {}", python, what, fault));
  }
  const std::string version = search.torch.empty() ? "" : fmt::format("=={}.*", search.torch);
  const std::string advice =
      is_installed ? fmt::format("type pip install torch{}", version) : "type make setup";
  return usage_error(
      "demo.python",
      fmt::format("no interpreter that has PyTorch, which exports the demo's models: {}; {}, or "
                  "name one: motley demo --python PYTHON",
                  join(tried, "; "), advice));
}

Result<std::string> find_examples(const DemoSearch& search) {
  const std::string folder =
      search.examples.empty() ? (root_of(search.program) / "examples").string() : search.examples;
  if (is_there(fs::path(folder) / kSomeExample)) return folder;
  return usage_error("demo.examples",
                     fmt::format("no {} in {}; name the folder of Motley's examples: motley demo "
                                 "--examples FOLDER",
                                 kSomeExample, folder));
}

}  // namespace

Result<DemoPlaces> find_demo_places(const DemoSearch& search, const AskPython& ask) {
  DemoPlaces places;
  const fs::path package = root_of(search.program) / "python";
  if (is_there(package / "motley/export.py")) places.package = package.string();
  MOTLEY_ASSIGN(places.examples, find_examples(search));
  MOTLEY_ASSIGN(places.python, find_interpreter(search, places.package.empty(), ask));
  return places;
}

std::string ask_python(const std::string& python, const std::vector<std::string>& modules) {
  std::vector<std::string> arguments = {"-c", kAsk};
  arguments.insert(arguments.end(), modules.begin(), modules.end());
  const auto missing = run::run_program(python, arguments, kAsking);
  if (!missing) return "cannot be run";
  const std::string name(trim(*missing));
  return name.empty() ? "" : "has no " + name;
}

}  // namespace motley::cli
