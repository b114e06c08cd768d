#include "motley/control/survey/worker_build.h"

#include <cstdlib>
#include <filesystem>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/run/launch/programs.h"

namespace motley::control {

namespace fs = std::filesystem;

namespace {

constexpr const char* kLibraryPath = "LD_LIBRARY_PATH";
constexpr double kAsking = 20;  // seconds
constexpr const char* kAsk =
    "import importlib.util as u; s = u.find_spec('torch'); print(list(s.submodule_search_locations)"
    "[0] if s else '')";

std::string variable(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? "" : text;
}

bool has_torch(const std::string& folder) {
  std::error_code code;
  return fs::exists(fs::path(folder) / "version.py", code);
}

/// Returns the interpreter of lib/python3.X/site-packages/motley/bin/motley-worker.
std::string interpreter_of(const std::string& worker) {
  if (const std::string named = variable("MOTLEY_PYTHON"); !named.empty()) return named;
  std::error_code code;
  fs::path prefix = fs::weakly_canonical(worker, code);
  for (int i = 0; i < 6; ++i) prefix = prefix.parent_path();
  const fs::path own = prefix / "bin/python3";
  return fs::exists(own, code) ? own.string() : "python3";
}

}  // namespace

WorkerBuild read_worker_build(const std::string& worker) {
  const WorkerBuild none{.torch = "", .folder = "", .cuda_left_out = "there is no motley-worker"};
  std::error_code code;
  const std::string path = fs::weakly_canonical(worker, code).string() + ".json";
  const auto text = read_file(path);
  const auto json = text ? parse_json(*text, path) : tl::make_unexpected(text.error());
  if (!json || !json->is_object()) return none;
  WorkerBuild build{.torch = json->value("torch", ""),
                    .folder = json->value("folder", ""),
                    .cuda_left_out = json->value("cuda_left_out", "")};
  build.folder = (fs::path(path).parent_path() / build.folder).lexically_normal().string();
  const std::string named = variable(kTorchVariable);
  if (!named.empty() && !has_torch(build.folder)) build.folder = named;
  return build.torch.empty() ? none : build;
}

void use_torch_elsewhere(const std::string& worker) {
  const WorkerBuild build = read_worker_build(worker);
  std::string folder = variable(kTorchVariable);
  const bool is_beside = has_torch(build.folder) && build.folder != folder;
  if (build.torch.empty() || is_beside) return;
  if (folder.empty()) {
    const auto said = run::run_program(interpreter_of(worker), {"-c", kAsk}, kAsking);
    folder = trim(said.value_or(""));
  }
  if (!has_torch(folder)) return;
  ::setenv(kTorchVariable, folder.c_str(), 1);
  const std::string libraries = folder + "/lib", before = variable(kLibraryPath);
  if (before == libraries || before.starts_with(libraries + ":")) return;
  ::setenv(kLibraryPath, (before.empty() ? libraries : libraries + ":" + before).c_str(), 1);
}

std::string worker_of(const std::string& program) {
  return (fs::path(program).parent_path() / "motley-worker").string();
}

}  // namespace motley::control
