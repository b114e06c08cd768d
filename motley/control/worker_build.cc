#include "motley/control/worker_build.h"

#include <filesystem>

#include "motley/base/file.h"
#include "motley/base/json.h"

namespace motley::control {

namespace fs = std::filesystem;

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
  return build.torch.empty() ? none : build;
}

std::string worker_of(const std::string& program) {
  return (fs::path(program).parent_path() / "motley-worker").string();
}

}  // namespace motley::control
