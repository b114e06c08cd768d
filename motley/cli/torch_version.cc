#include "motley/cli/torch_version.h"

#include <fmt/format.h>

#include <filesystem>
#include <regex>

#include "motley/base/file.h"

// Set by the build: which PyTorch motley-worker was compiled against, where it lay, and
// what kept libmotley_cuda.so from being built.
#ifndef MOTLEY_TORCH_VERSION
#define MOTLEY_TORCH_VERSION ""
#define MOTLEY_TORCH_ROOT ""
#define MOTLEY_CUDA_FAULT "it was built without motley-worker"
#endif

namespace motley::cli {
namespace {

std::string minor_of(const std::string& version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

}  // namespace

std::string built_torch_version() { return MOTLEY_TORCH_VERSION; }

std::string cuda_left_out() { return MOTLEY_CUDA_FAULT; }

Result<std::string> worker_version(const Context& context) {
  const std::string built = MOTLEY_TORCH_VERSION, root = MOTLEY_TORCH_ROOT;
  if (built.empty() || !std::filesystem::exists(context.worker))
    return usage_error("worker.missing",
                       context.worker + ": not there; build it with make, it trains and measures");
  MOTLEY_ASSIGN(const std::string text, read_file(root + "/version.py"));
  std::smatch match;
  if (!std::regex_search(text, match, std::regex("__version__ = '([0-9]+\\.[0-9]+)[^']*'")))
    return usage_error("worker.version", root + "/version.py: found no version of PyTorch");
  if (match[1] != minor_of(built))
    return usage_error(
        "worker.version",
        fmt::format("{}: found PyTorch {}, motley-worker was built for {}; run make again", root,
                    match[1].str(), minor_of(built)));
  return minor_of(built);
}

}  // namespace motley::cli
