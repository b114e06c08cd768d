#include "motley/cli/demo_places.h"

#include <fmt/format.h>

#include <filesystem>

#include "motley/base/text.h"
#include "motley/run/launcher.h"

namespace motley::cli {
namespace {

namespace fs = std::filesystem;

constexpr double kAsking = 20;  // seconds, of a cold disk
constexpr const char* kAsk =
    "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)";
constexpr const char* kSomeExample = "digits_cnn.py";

bool is_there(const fs::path& path) {
  std::error_code code;
  return fs::exists(path, code);
}

/// The folder beside which the program's own lies: of the sources, or of the package.
fs::path root_of(const std::string& program) {
  return fs::path(program).parent_path().parent_path();
}

/// An interpreter to be tried, and what it is.
struct Candidate {
  std::string python, what;
};

std::vector<Candidate> python_candidates(const DemoSearch& search) {
  if (!search.python.empty()) return {{search.python, "--python"}};
  if (!search.named_python.empty()) return {{search.named_python, "MOTLEY_PYTHON"}};
  std::vector<Candidate> candidates;
  if (!search.torch_folder.empty()) {
    // Of PREFIX/lib/python3.X/site-packages/torch.
    fs::path prefix = search.torch_folder;
    for (int i = 0; i < 4; ++i) prefix = prefix.parent_path();
    candidates.push_back({(prefix / "bin/python3").string(), "beside the worker's PyTorch"});
  }
  candidates.push_back({(root_of(search.program) / ".venv/bin/python").string(), "of the sources"});
  candidates.push_back({"python3", "in PATH"});
  return candidates;
}

Result<std::string> find_interpreter(const DemoSearch& search, const AskPython& ask) {
  std::vector<std::string> tried;
  for (const auto& [python, what] : python_candidates(search)) {
    const bool is_path = python.find('/') != std::string::npos;
    const std::string fault = is_path && !is_there(python) ? "is not there" : ask(python);
    if (fault.empty()) return python;
    tried.push_back(fmt::format("{} ({}) {}", python, what, fault));
  }
  const std::string version = search.torch.empty() ? "" : fmt::format("=={}.*", search.torch);
  return usage_error(
      "demo.python",
      fmt::format("no interpreter that has PyTorch, which exports the demo's models: {}. In the "
                  "sources type make setup; elsewhere pip install torch{}; or name one: motley "
                  "demo --python PYTHON",
                  join(tried, "; "), version));
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
  MOTLEY_ASSIGN(places.examples, find_examples(search));
  MOTLEY_ASSIGN(places.python, find_interpreter(search, ask));
  const fs::path package = root_of(search.program) / "python";
  if (is_there(package / "motley/export.py")) places.package = package.string();
  return places;
}

std::string ask_python(const std::string& python) {
  const auto said = run::run_program(python, {"-c", kAsk}, kAsking);
  if (said) return "";
  return is_there(python) ? "has no package torch" : "has no package torch, or is not there";
}

}  // namespace motley::cli
